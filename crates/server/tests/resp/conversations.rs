//! What clients say and hear, as snapshots.

use insta::assert_snapshot;

use crate::conversation;

macro_rules! conversations {
    ($($name:ident($password:expr): $lines:expr;)*) => {
        $(#[tokio::test]
        async fn $name() {
            let told = conversation($password, &$lines).await;
            // The lines stand in what is told; a second copy of them helps nobody.
            insta::with_settings!({ omit_expression => true }, { assert_snapshot!(told) });
        })*
    };
}

conversations! {
    throttle(None): [
        "CL.THROTTLE user:1 2 1 60",
        "cl.throttle user:1 2 1 60",
        "CL.THROTTLE user:1 2 1 60 2",
        "CL.THROTTLE user:1 2 1 60 0",
        "CL.THROTTLE user:1 2 1 60 1",
        "CL.THROTTLE user:1 2 1 60 4",
        "CL.THROTTLE user:1 2 1 60",
        "EXISTS user:1 user:2",
        "TTL user:1",
        "PTTL user:1",
        "DEL user:1 user:2",
        "DEL user:1",
        "TTL user:1",
        "CL.THROTTLE user:1 2 1 60",
        "CL.THROTTLE \"\\xff\\x00 _{}\" 2 1 60",
    ];
    throttle_errors(None): [
        "CL.THROTTLE",
        "CL.THROTTLE k 1 1",
        "CL.THROTTLE k 1 1 1 1 1",
        "CL.THROTTLE k x 1 1",
        "CL.THROTTLE k 1 1.5 1",
        "CL.THROTTLE k 1 1 9223372036854775808",
        "CL.THROTTLE k 1 1 1 \"\"",
        "CL.THROTTLE k -1 1 1",
        "CL.THROTTLE k 1 -1 1",
        "CL.THROTTLE k 1 1 -1",
        "CL.THROTTLE k 1 1 1 -1",
        "CL.THROTTLE k 1 0 1",
        "CL.THROTTLE k 1 1 0",
        "CL.THROTTLE k 9223372036854775807 1 1",
        "CL.THROTTLE k 1 1 9223372036854775807",
        "CL.THROTTLE k 1 10000001 1",
        "CL.THROTTLE k 9223372036854775807 9223372036854775807 9223372036854775807 9223372036854775807",
        "CL.THROTTLE \"\" 1 1 1",
        "EXISTS k",
        "CL.THROTTLE k 1 1 1 9223372036854775807",
        "EXISTS k",
        "CL.THROTTLE k 1 10000000 1",
    ];
    handshakes(None): [
        "HELLO",
        "HELLO 3 SETNAME me",
        "CLIENT MAINT_NOTIFICATIONS ON",
        "CLIENT SETINFO LIB-NAME redis-py",
        "CLIENT SETINFO LIB-VER 8.1.0",
        "CLIENT SETINFO other x",
        "SELECT 5",
        "SELECT -1",
        "SELECT x",
        "CLIENT GETNAME",
        "CLIENT SETNAME \"a b\"",
        "CLIENT ID",
        "CLIENT NO-EVICT on",
        "CLIENT",
        "CLIENT SETNAME",
        "CONFIG GET save",
        "CONFIG GET appendonly",
        "CONFIG GET nothing",
        "CONFIG SET a b",
        "COMMAND COUNT",
        "COMMAND INFO ping nothing",
        "COMMAND DOCS ping ping",
        "PING",
        "PING hi",
        "PING a b",
        "ECHO hi",
        "TIME",
        "FLUSHALL",
        "foo a b",
        "foo",
        "HELLO 4",
        "HELLO x",
        "HELLO 3 nothing",
        "HELLO 2",
        "CLIENT GETNAME",
        "RESET",
        "CLIENT GETNAME",
        "QUIT",
    ];
    passwords(Some("secret")): [
        "PING",
        "CL.THROTTLE k 1 1 1",
        "HELLO 3",
        "AUTH wrong",
        "AUTH secret2",
        "AUTH other secret",
        "AUTH default secret",
        "PING",
        "RESET",
        "PING",
        "HELLO 3 AUTH default wrong",
        "HELLO 3 AUTH default secret",
        "PING",
        "AUTH secret",
        "AUTH a b c",
    ];
    no_password(None): ["AUTH x", "AUTH default x", "AUTH other x", "HELLO 3 AUTH default x"];
    transactions(None): [
        "MULTI",
        "CL.THROTTLE k 2 1 60",
        "CL.THROTTLE k 2 1 60 0",
        "CL.THROTTLE k x 1 60",
        "MULTI",
        "WATCH k",
        "TTL k",
        "EXEC",
        "MULTI",
        "CL.THROTTLE k 2",
        "PING",
        "EXEC",
        "MULTI",
        "nothing",
        "EXEC",
        "MULTI",
        "INFO",
        "DISCARD",
        "MULTI",
        "CL.THROTTLE k 2 1 60",
        "DISCARD",
        "TTL k",
        "EXEC",
        "DISCARD",
        "WATCH k",
        "UNWATCH",
        "MULTI",
        "EXEC",
    ];
    configured_rules(None): [
        "TIDEGATE.CHECK nowhere user 42",
        "TIDEGATE.CHECK nowhere user",
        "TIDEGATE.CHECK nowhere user 42 more",
        "TIDEGATE.CHECK nowhere user 42 COST -1",
        "TIDEGATE.CHECK nowhere \"\\xff\" 42",
        "TIDEGATE.CHECK",
    ];
}
