//! How the services of the examples start: settings from the environment, and the errors about invalid ones.
#![allow(dead_code, reason = "each example uses its share")]

use std::env::var;
use std::error::Error;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;

use tokio::net::TcpListener;

/// Returns the exit code of a service, and prints the error if there is one: a wrong setting and its remedy.
pub(crate) fn ended(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns a setting, or its default.
pub(crate) fn setting(name: &str, otherwise: &str) -> String {
    var(name).unwrap_or_else(|_| otherwise.to_owned())
}

/// A setting in milliseconds.
pub(crate) fn millis(name: &str, otherwise: u64) -> Result<Duration, String> {
    let text = setting(name, &otherwise.to_string());
    let millis = text.parse().map_err(|_| format!("{name}: {text:?} is no number of milliseconds; use one like 50"))?;
    Ok(Duration::from_millis(millis))
}

/// Listens where a setting says.
pub(crate) async fn listen(name: &str, otherwise: &str) -> Result<TcpListener, String> {
    let address = setting(name, otherwise);
    let listener = TcpListener::bind(&address).await;
    listener.map_err(|error| {
        let is_taken = error.kind() == ErrorKind::AddrInUse;
        let like = if is_taken { "another address" } else { &format!("an address like {otherwise}") };
        format!("{name}: cannot listen on {address:?}: {error}; use {like}, or 127.0.0.1:0 for any port that is free")
    })
}
