//! Every bound of the links to Redis in one place, each with its reason.

use std::time::Duration;

/// Where Redis listens when a URL does not say.
pub(crate) const PORT: u16 = 6379;

/// Where a Sentinel listens when a URL does not say.
pub(crate) const SENTINEL_PORT: u16 = 26_379;

/// Longest URL of a store, in bytes: sixteen hosts with long names, a user and a password fit.
pub(crate) const URL_BYTES_MAX: usize = 8192;

/// Most hosts in a URL: a few lead to all others.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// Highest number of a database: Redis has 16 unless its configuration says otherwise; nobody needs more than this.
pub(crate) const DATABASE_MAX: u32 = 9_999;

/// Longest prefix of keys, in bytes: it stands in every key and every call.
pub(crate) const PREFIX_BYTES_MAX: usize = 64;

/// How long Redis may take for a call when nothing is said. A limiter stands in front of work that takes longer.
pub(crate) const BUDGET_DEFAULT: Duration = Duration::from_millis(10);

/// Shortest budget: timers tick in milliseconds.
pub(crate) const BUDGET_MIN: Duration = Duration::from_millis(1);

/// Longest budget: a caller who waits longer is better served by the answer for a failed store.
pub(crate) const BUDGET_MAX: Duration = Duration::from_secs(10);

/// Most connections to a node when a URL does not say: one for each serving thread of most machines. Each costs Redis a
/// little.
pub(crate) const LINKS_DEFAULT: usize = 8;

/// Most connections to a node.
pub(crate) const LINKS_MAX: usize = 64;

/// How long a call may wait for its turn in this node when a URL does not say.
pub(crate) const WAIT_DEFAULT: Duration = Duration::from_millis(100);

/// How long a call waits for its turn at least, also if its request has used up its wait: a connection with room takes it
/// within that.
pub(crate) const TURN_TIME_MIN: Duration = Duration::from_millis(1);

/// Longest wait: callers who wait longer are better served by an answer.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);

/// Most calls that wait on a connection: at a slow 40,000 calls a second they are done within the default wait.
pub(crate) const WAITING_MAX: usize = 4096;

/// Calls that a connection leaves unanswered at first: Redis answers as many within a millisecond.
pub(crate) const UNANSWERED_FIRST: usize = 64;

/// Most calls that a connection leaves unanswered.
pub(crate) const UNANSWERED_MAX: usize = 1024;

/// Shortest span over which the pace of answers is taken.
pub(crate) const PACE_SPAN: Duration = Duration::from_millis(5);

/// Most calls that are joined to one command: a script that takes one after the other holds up the others meanwhile.
pub(crate) const JOINED_MAX: usize = 64;

/// Unanswered commands of one key from which on it is hot: its further calls wait for a round trip at most, so that they can
/// be joined. Calls for a key of few callers meet by chance, and should not wait.
pub(crate) const HOT_UNANSWERED_MIN: usize = 4;

/// Fewest answers that tell a pace.
pub(crate) const PACE_ANSWERS_MIN: u64 = 16;

/// By how much a timer may ring late: beyond that it has measured this node. Timers tick in milliseconds.
pub(crate) const LATE_MAX: Duration = Duration::from_millis(2);

/// Shortest time between two looks at what is due. Timers tick in milliseconds.
pub(crate) const RING_PAUSE: Duration = Duration::from_millis(1);

/// Shortest time between handing out a call and writing it that is taken off its budget.
pub(crate) const WRITE_NOTED_MIN: Duration = Duration::from_micros(100);

/// How long before its caller's deadline a call is over, so that the answer still gets there.
pub(crate) const LEAVE_MARGIN: Duration = Duration::from_millis(1);

/// Room for what is read at once.
pub(crate) const READ_BYTES: usize = 16 * 1024;

/// Longest reply: a map of the largest Cluster is shorter.
pub(crate) const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most replies that are read before they are looked at: all calls of a connection, whose commands have up to three replies,
/// have fewer.
pub(crate) const REPLIES_MAX: usize = 4 * WAITING_MAX;

/// How deep replies are nested: the map of a Cluster has four levels.
pub(crate) const REPLY_DEPTH_MAX: usize = 8;

/// How long making a connection may take, with names, TLS, login and all.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);

/// First pause between attempts to connect: a restarted Redis is back soon.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// Longest pause between attempts to connect: it bounds how late the return of Redis is noticed.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Pause before a call is sent again to a node that was not ready for it (TRYAGAIN, LOADING, CLUSTERDOWN).
pub(crate) const NOT_READY_PAUSE: Duration = Duration::from_millis(2);

/// Most redirections of one call: a slot that moves redirects twice, and a map that is old once more.
pub(crate) const REDIRECTIONS_MAX: usize = 5;

/// How often a call tells its script to servers: once each time it was forgotten, and it can be again in between.
pub(crate) const LOADS_MAX: usize = 3;

/// Failures in a row after which the breaker opens. With a budget of 10 ms even one caller alone gets there in 50 ms.
pub(crate) const FAILURES_IN_ROW_MAX: u32 = 5;

/// The window over which the share of failures is taken: half of the second in which the breaker must have opened.
pub(crate) const BREAKER_WINDOW: Duration = Duration::from_millis(500);

/// Fewest calls in the window before their share of failures says anything.
pub(crate) const BREAKER_CALLS_MIN: u32 = 20;

/// Pause between probes of a node whose breaker is open.
pub(crate) const PROBE_PAUSE: Duration = Duration::from_millis(150);

/// How long a probe may stay unanswered before its connection is dropped: replies of a peer that hangs must not pile up.
pub(crate) const PROBE_TIME_MAX: Duration = Duration::from_secs(1);

/// How long a server may take for each question of somebody who looks at the store from outside: it is to be found out how
/// slow it is, so this is longer than most stores allow.
pub(crate) const DIRECT_ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a connection that gets no further calls may take to answer those that were sent.
pub(crate) const DRAIN_TIME_MAX: Duration = Duration::from_millis(100);

/// Pause between questions to the Sentinels, each of which asks the next one of them: it bounds for how long calls go to
/// an old primary that does not know yet.
pub(crate) const SENTINEL_PAUSE: Duration = Duration::from_millis(100);

/// How long a Sentinel may take to answer.
pub(crate) const SENTINEL_TIME_MAX: Duration = Duration::from_millis(300);

/// How long other Sentinels may take once one has answered: the one with the newest word may not be the first.
pub(crate) const SENTINEL_GRACE: Duration = Duration::from_millis(50);

/// Pause between looks at the map of a Cluster while it is used.
pub(crate) const MAP_PAUSE: Duration = Duration::from_secs(5);

/// Pause between looks at the map while something is wrong: it bounds how late a failover is noticed.
pub(crate) const MAP_PAUSE_TROUBLED: Duration = Duration::from_millis(100);

/// How long a node may take to tell the map.
pub(crate) const MAP_TIME_MAX: Duration = Duration::from_millis(300);

/// Most nodes of a Cluster that are remembered: Redis itself advises to stay below this.
pub(crate) const NODES_MAX: usize = 1000;

/// Shortest time between two messages of one kind about one node.
pub(crate) const MESSAGE_PAUSE: Duration = Duration::from_secs(5);
