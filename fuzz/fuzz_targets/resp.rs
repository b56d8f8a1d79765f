//! Any bytes on the Redis port: no panic, and the same commands however the bytes are cut.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidegate_server::fuzzing::resp(bytes));
