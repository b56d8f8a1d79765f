//! Every bound on what comes in from outside, in one place, each with its reason.

use std::time::Duration;

use tidegate_engine::LogRate;

use crate::budget::RequestMemory;

use crate::line_queue::QueueSize;

/// Most connections that one listener serves at a time. Each takes some kilobytes and a file descriptor.
pub const CONNECTIONS_MAX: usize = 10_000;

/// Fewest connections that a listener serves, however few files the system lets it open: with fewer it would be of no use,
/// and who runs it so shall see the system's own errors.
pub const CONNECTIONS_MIN: usize = 16;

/// Connections that the HTTP listener serves beyond its bound, each for one request and [`SPARE_TIME`] at most: somebody
/// must be able to ask what is wrong when all the others are taken. If these are taken too, the oldest gives way.
pub const SPARE_CONNECTIONS: usize = 64;

/// How long a connection must have been idle to be closed for one that comes when there are too many: longer than clients pause
/// between two requests.
pub const EVICT_IDLE: Duration = Duration::from_secs(60);

/// How often it is looked which connections are in use: so much longer than [`EVICT_IDLE`] one may have to be idle.
pub const SEATS_LOOK: Duration = Duration::from_secs(5);

/// How long to wait before looking again for a connection to close when there was none: that takes a look at thousands.
pub const EVICT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection beyond the bound may take, from its first byte to its last.
pub const SPARE_TIME: Duration = Duration::from_secs(2);

/// File descriptors that are kept from connections: rules, certificates, logs, traces, signals.
pub const FILES_KEPT: u64 = 64;

/// File descriptors that are kept from connections for each thread that serves: three listeners, three to wait for
/// events, and one for a connection that is about to be refused.
pub const FILES_KEPT_A_THREAD: u64 = 8;

/// Rules that a log line about a reload names of each kind, added, removed or changed: a line stays readable, and a
/// reload may change thousands.
pub const RULES_NAMED_MAX: usize = 5;

/// Places that threads count traffic in: as many as they count rules in, for the same reason.
pub const TRAFFIC_SHARDS: usize = tidegate_engine::bounds::COUNTER_SHARDS_MAX;

/// How long a connection may stay silent in the middle of a request, or before its first one, or read nothing of what is
/// written to it: longer than any honest client needs, short enough that silent sockets do not pile up.
pub const STALL: Duration = Duration::from_secs(10);

/// How long a write waits before it is offered to the system though that has not told of room: it tells only once a third of
/// all is free. Long enough that a connection that only gives way to others has had its turn.
pub const WRITE_LOOK: Duration = Duration::from_millis(100);

/// How long connections may finish their work after the server was told to stop: orchestrators mostly kill after 30
/// seconds, and some of those are spent on being noticed.
pub const DRAIN: Duration = Duration::from_secs(20);

/// How long after a signal to stop another one means the same: supervisors send it to a process and to its group, and a
/// terminal sends it beside them. Shorter than a person takes to lose patience.
pub const REPEATED_STOP: Duration = Duration::from_millis(500);

/// Longest message over gRPC. The largest honest request, 128 descriptors of 64 entries of 20 bytes, takes two thirds of
/// it.
pub const GRPC_MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// Most calls at a time on one gRPC connection: with [`GRPC_MESSAGE_BYTES_MAX`] it bounds what a connection can make the
/// server keep. Clients with more calls wait or open another connection.
pub const GRPC_STREAMS_MAX: u32 = 256;

/// Longest frame that is taken: the smallest bound that HTTP/2 allows to set, and more than most messages have.
pub const GRPC_FRAME_BYTES_MAX: u32 = 16 * 1024;

/// Bytes that a gRPC connection may send before they are read, over all its calls, and for one of them: about what HTTP/2
/// starts with for a call, and 16 times that for a connection, so that one call that stalls does not stop the others.
pub const GRPC_WINDOW_BYTES: (u32, u32) = (1024 * 1024, 64 * 1024);

/// Longest head of a gRPC call: Envoy's with a trace context takes less than one kilobyte.
pub const GRPC_HEADER_BYTES_MAX: u32 = 16 * 1024;

/// Most calls on one connection that were reset and are not forgotten yet: who resets faster is cut off.
pub const GRPC_RESETS_MAX: usize = 64;

/// How long a gRPC connection may be silent before it is asked whether it still lives: clients keep idle connections, and
/// only those that are alive may.
pub const GRPC_KEEP_ALIVE: Duration = Duration::from_secs(9);

/// How long a gRPC connection has to answer that: with [`GRPC_KEEP_ALIVE`], one that stopped in the middle of a frame ends
/// as soon as half a request of the other protocols does.
pub const GRPC_KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(4);

/// Lines of the decision log that may wait to be written: some milliseconds of the fastest traffic, for a disk that pauses.
/// Their bytes are bounded too, since one alone can be as long as the longest request.
pub(crate) const DECISION_LOG_QUEUE: QueueSize = QueueSize { lines: 8_192, bytes: 8 << 20 };

/// How long to wait before looking again whether all lines are written: not noticed by who stops the server.
pub const DECISION_LOG_LOOK: Duration = Duration::from_millis(10);

/// How often, each [`DECISION_LOG_LOOK`], it is looked at the end whether all lines are written: for two seconds. A disk
/// that hangs must not keep the process.
pub const DECISION_LOG_LOOKS: u32 = 200;

/// Bytes of the decision log before it is set aside: twice this much is on disk at most.
pub const DECISION_LOG_BYTES_MAX: u64 = 100 << 20;

/// Longest argument of a command on the protocol of Redis: far above the longest key, and room for an ECHO.
pub const ARGUMENT_BYTES_MAX: usize = 64 * 1024;

/// Most arguments of a command on the protocol of Redis: a DEL of many keys is cut into several.
pub const ARGUMENTS_MAX: usize = 1024;

/// Longest argument on the protocol of Redis that is answered with an error, though it is not kept: it is read and thrown
/// away, so that the connection can go on with the next command. A longer one ends the connection.
pub const SKIPPED_ARGUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Longest command on the protocol of Redis. It is kept in memory until its last byte came.
pub const COMMAND_BYTES_MAX: usize = 128 * 1024;

/// Longest line of a command that is typed rather than sent as an array: that of Redis.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Most arguments of a command before the password was said, typed or not: HELLO with all its options has fewer.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;

/// Longest argument before the password was said: strangers get little memory.
pub const UNAUTHENTICATED_ARGUMENT_BYTES_MAX: usize = 16 * 1024;

/// Longest typed line before the password was said, for the same reason.
pub const UNAUTHENTICATED_INLINE_BYTES_MAX: usize = UNAUTHENTICATED_ARGUMENT_BYTES_MAX;

/// Replies of a pipeline that are kept before they are written, though more of its commands were read: who sends and does
/// not read must not fill the memory.
pub const REPLIES_BYTES_MAX: usize = 64 * 1024;

/// Room to read commands into. It grows where reads fill it and shrinks back, so that idle connections stay small.
pub const READ_BYTES_MIN: usize = 4 * 1024;

/// Most room that one read gets: larger reads do not get cheaper, and each connection may hold one.
pub const READ_BYTES_MAX: usize = 64 * 1024;

/// Most commands between MULTI and EXEC: they are run without a pause, and others of the thread wait meanwhile.
pub const QUEUED_COMMANDS_MAX: usize = 1024;

/// Most bytes of the arguments between MULTI and EXEC: they are kept until EXEC comes.
pub const QUEUED_BYTES_MAX: usize = 128 * 1024;

/// Longest name that a client gives itself or its library: it is kept as long as the connection.
pub const CLIENT_NAME_BYTES_MAX: usize = 256;

/// How long a connection of a Redis client may be idle between commands. Pools keep connections for long, but one whose
/// peer is gone without a word must end some day.
pub const IDLE: Duration = Duration::from_secs(3600);

/// How long a connection that is about to be closed is still read from, so that its last replies arrive: closing a
/// socket with unread bytes resets it.
pub const LINGER: Duration = Duration::from_secs(1);

/// How long an HTTP connection may stay open between two requests: longer than proxies keep theirs, so that they close
/// first and never write into a connection that is just being closed.
pub const HTTP_IDLE: Duration = Duration::from_secs(90);

/// How often HTTP connections are looked at for silence, so that none outlives its bound by more than twice this, counted
/// from its last sign of life.
pub const HTTP_WATCH: Duration = Duration::from_secs(2);

/// Pages of a kind that may be read at a time before newcomers share one: pages about thousands of rules have megabytes.
pub const PAGES_FRESH: usize = 2;

/// How old the newest page may be to be shared. It bounds how many there are; short enough that nobody who scrapes sees a
/// difference.
pub const PAGE_SHARED: Duration = Duration::from_secs(2);

/// How long a connection has to take a page about all rules: as long as Prometheus gives a scrape. With the two above, at
/// most [`PAGES_FRESH`] + ([`PAGE_SHARED`] + `PAGE_READ` + 2 × [`HTTP_WATCH`]) / [`PAGE_SHARED`] = 10 of a kind are held.
pub const PAGE_READ: Duration = Duration::from_secs(10);

/// Wrong secrets that an address may try at once, and the time in which that many more become possible: nobody mistypes
/// more often, and at ten a minute a password of eight letters takes many thousand years.
pub const GUESSES_MAX: u64 = 10;

/// See [`GUESSES_MAX`].
pub const GUESSES_PERIOD: Duration = Duration::from_secs(60);

/// Addresses whose wrong secrets are counted exactly. Of further ones some may have to wait for others.
pub const GUESSING_ADDRESSES: usize = 4_096;

/// Wrong passwords after which the connection of a Redis client is closed.
pub const WRONG_PASSWORDS_MAX: u32 = 10;

/// Most bytes of the head of an HTTP request: twice what common proxies let pass. More than 100 headers are refused too.
pub const HTTP_HEAD_BYTES_MAX: usize = 16 << 10;

/// Headers that a map may have room for to be kept after its request: what clients and proxies send, and not a hundred.
/// Maps grow by doubling: the next larger one has room for 48.
pub const SPARE_HEADERS_MAX: usize = 24;

/// Bytes of an HTTP connection that may wait to be read or written: one head, so that half a head takes no more than that.
/// Bodies go through it in pieces.
pub const HTTP_BUFFER_BYTES_MAX: usize = HTTP_HEAD_BYTES_MAX;

/// Most bytes of the body of an HTTP request: room for as many descriptors as a request may have.
pub const HTTP_BODY_BYTES_MAX: usize = 256 << 10;

/// Longest problem body that is repeated in a header. nginx treats a response as lost if its head exceeds a buffer of 4 kB or
/// 8 kB, and the names of the limits are in two more headers.
pub const PROBLEM_HEADER_BYTES_MAX: usize = 1024;

/// Longest body that is read and dropped because no call needs it, so that the connection stays open. A longer one closes it.
pub const HTTP_SKIPPED_BYTES_MAX: u64 = 16 << 10;

/// Most parameters of a query: finding one looks at all of them.
pub const QUERY_PARAMETERS_MAX: usize = 80;

/// Most checks in one list: they are charged in one transaction.
pub const CHECKS_MAX: usize = tidegate_core::bounds::CHARGES_MAX;

/// Bytes of a `Host` that the page for people repeats: a name has at most 253, and a port follows.
pub const HOST_BYTES_MAX: usize = 260;

/// Connections that may wait to be accepted: a burst of them while all threads are busy.
pub const BACKLOG: i32 = 1024;

/// Bytes that the system may hold for a client that does not read them; Linux doubles it for its own needs. Left to itself
/// it takes megabytes for each. Long pages go through it in pieces.
pub const SEND_BYTES: usize = 128 << 10;

/// How long to wait after an accept that failed, as when file descriptors run out: trying at once would only fail again.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Lines of a listener about connections that it cannot accept, and as many about those that it cannot serve: accepting
/// is tried a hundred times a second on each thread.
pub const ACCEPT_LINES: LogRate = LogRate { lines: 1, period: Duration::from_secs(5) };

/// Memory for requests that have not come whole, of a listener and of one connection: 64 and 8 of the longest messages. Nearly
/// all requests come at once, and need nothing of it.
pub const REQUEST_MEMORY: RequestMemory = RequestMemory { listener_bytes: 16 << 20, connection_bytes: 2 << 20 };

/// What the server needs for an unfinished request beside the bytes of it: its task, its stream and its timer. With
/// [`REQUEST_MEMORY`] a listener waits for 8,192 requests at most.
pub const UNFINISHED_REQUEST_BYTES: usize = 2 << 10;

/// After what time a request that never came whole tells that its connection is of no use: nearly [`STALL`], which is how long
/// it is waited for, and begins a little earlier.
pub const GIVEN_UP_AFTER: Duration = STALL.saturating_sub(Duration::from_secs(1));

/// How long the other calls of a gRPC connection may go on once one was not sent in time: with [`STALL`] it ends as soon as half
/// requests of the other protocols do.
pub const DAWDLED: Duration = Duration::from_secs(2);

/// Frames of HTTP/2 without a call that a connection may send, a second and at once, beyond those that its calls earn: far more
/// than clients need to ask whether the server lives and to tell how much they take.
pub const GRPC_CONTROL_FRAMES: (u64, u64) = (200, 1_000);

/// Such frames that each frame of a call earns: clients reset a call, open the windows of it and of the connection, and
/// measure the line.
pub const GRPC_CONTROL_FRAMES_EARNED: u32 = 4;

/// Longest message to ask whether a service is healthy: it has the name of one.
pub const GRPC_HEALTH_BYTES_MAX: usize = 4 << 10;

/// How often files of rules are looked at: soon enough for who waits for it, and rare enough to cost nothing.
pub const RELOAD_LOOK: Duration = Duration::from_millis(500);

/// How long before its end a certificate is warned of: whoever renews by hand needs some days.
pub const CERTIFICATE_WARNING: Duration = Duration::from_secs(7 * 86_400);

/// Largest file of certificates or keys: all authorities that browsers trust take a quarter of it. A path that leads to
/// something endless must not fill the memory.
pub const TLS_FILE_BYTES_MAX: u64 = 1 << 20;

/// Lines about clients that were turned away, for each kind of refusal, about connections that broke, and about panics:
/// enough to see who and why.
pub const REFUSAL_LINES: LogRate = LogRate { lines: 3, period: Duration::from_secs(1) };

/// Lines about traces that could not be sent: a collector that is gone must not fill the log.
pub const TRACE_LINES: LogRate = LogRate { lines: 1, period: Duration::from_secs(60) };

/// How often it is looked whether logs of sliding limits outgrow their store.
pub const LOG_ROOM_LOOK: Duration = Duration::from_secs(5);

/// Lines about one such store: it goes on for as long as nobody gives it more room.
pub const LOG_ROOM_LINES: LogRate = LogRate { lines: 1, period: Duration::from_secs(600) };

/// Lines about lines of the log that were dropped.
pub const DROPPED_LINES: LogRate = LogRate { lines: 1, period: Duration::from_secs(10) };

/// Lines of the log that may wait to be written, and their bytes: a burst of them, or the pause of a reader.
pub(crate) const LOG_QUEUE: QueueSize = QueueSize { lines: 1_024, bytes: 1 << 20 };

/// Bytes of the log in a second, and in a burst: no line that is limited by its kind ever meets this. At the level `debug`
/// dependencies log each frame of a client.
pub const LOG_BYTES_A_SECOND: u64 = 1 << 20;

/// Characters of the message of a panic that are logged: it may repeat what a client sent.
pub const PANIC_CHARS_MAX: usize = 300;

/// How long to wait at the end before looking again whether the log is written.
pub const LOG_END_LOOK: Duration = Duration::from_millis(5);

/// How often, each [`LOG_END_LOOK`], it is looked at the end whether the log is written: for a fifth of a second. A pipe
/// that nobody reads must not keep the process.
pub const LOG_END_LOOKS: u32 = 40;

/// Small reads in a row after which a buffer of a Redis client gets smaller: a pause in a pipeline is no reason.
pub const SMALL_READS_MAX: u32 = 64;

/// Bytes of a command that an error on the protocol of Redis repeats, as many as Redis repeats.
pub const COMMAND_BYTES_TOLD_MAX: usize = 128;

/// Bytes of what should be a number that such an error repeats: twice the digits of any.
pub const NUMBER_BYTES_TOLD_MAX: usize = 40;

/// Most digits of a length on the protocol of Redis: more than any that is let pass has, and few enough for 64 bits.
pub const LENGTH_DIGITS_MAX: usize = 10;

/// Longest time at the end of a drain for giving back what was leased of shared stores: what does not get there comes back by
/// itself.
pub(crate) const STORES_CLOSE: Duration = Duration::from_secs(1);

/// How long a start waits for the connections to shared stores that are being made. After that it serves as the rules say.
pub const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
