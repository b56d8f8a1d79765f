//! Where the primary is, as Sentinels say.
//!
//! Sentinels may disagree for a while, and one that is cut off keeps saying what was true before. Each answer comes with
//! the epoch of the failover that made it, and the newest one counts. Another word that is not newer is believed only if
//! most Sentinels of the URL say it: then they were set up anew.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::url::Address;
use super::bounds::{SENTINEL_GRACE, SENTINEL_PAUSE, SENTINEL_TIME_MAX};
use super::command::Packed;
use super::dial::{DialError, Dialer, Endpoint, Expect, Wire};
use super::node::Node;
use super::reply::Reply;

pub(super) struct Sentinels {
    addresses: Vec<Address>,
    /// How they call the primary.
    name: String,
    dialer: Dialer,
    newest: Mutex<Option<Word>>,
    watched: AtomicBool,
    pub(super) stop: Notify,
}

/// What a Sentinel says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    epoch: u64,
    primary: Address,
}

impl Sentinels {
    pub(super) fn new(addresses: Vec<Address>, name: String, dialer: Dialer) -> Arc<Sentinels> {
        let (newest, watched, stop) = (Mutex::new(None), AtomicBool::new(false), Notify::new());
        Arc::new(Sentinels { addresses, name, dialer, newest, watched, stop })
    }

    /// Asks all of them at once, and waits for the others only a little once one has answered.
    pub(super) async fn locate(self: &Arc<Self>) -> Result<Address, DialError> {
        let mut asked = JoinSet::new();
        for address in &self.addresses {
            let (sentinels, address) = (Arc::clone(self), address.clone());
            asked.spawn(async move {
                let (word, _) = sentinels.ask_anew(&address).await?;
                Ok::<Word, DialError>(word)
            });
        }
        let (mut words, mut failure) = (Vec::new(), DialError::from("there are no Sentinels".to_owned()));
        let mut end = Instant::now() + SENTINEL_TIME_MAX;
        loop {
            let answer = tokio::select! {
                answer = asked.join_next() => answer,
                () = sleep_until(end) => None,
            };
            match answer {
                None => break,
                Some(Ok(Ok(word))) => {
                    words.push(word);
                    end = end.min(Instant::now() + SENTINEL_GRACE);
                }
                Some(Ok(Err(error))) => failure = error,
                Some(Err(_)) => {}
            }
        }
        self.believe(&words).ok_or_else(|| match words.is_empty() {
            true => DialError { reason: format!("no Sentinel names the primary: {}", failure.reason), ..failure },
            false => "the Sentinels that answer have older data than Sentinels before them".to_owned().into(),
        })
    }

    /// Asks each of them, and returns why some do not answer.
    pub(super) async fn failures(&self) -> Vec<DialError> {
        let mut failures = Vec::new();
        for address in &self.addresses {
            if let Err(error) = self.ask_anew(address).await {
                failures.push(error);
            }
        }
        failures
    }

    /// The newest word, if one of these is it.
    fn believe(&self, words: &[Word]) -> Option<Address> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let agreeing = |best: &Word| words.iter().filter(|word| word.primary == best.primary).count();
        let best = words.iter().max_by_key(|word| (word.epoch, agreeing(word)))?;
        let is_news = newest.as_ref().is_none_or(|known| known == best || known.epoch < best.epoch);
        if !is_news && agreeing(best) * 2 <= self.addresses.len() {
            return None;
        }
        *newest = Some(best.clone());
        Some(best.primary.clone())
    }

    async fn ask_anew(&self, address: &Address) -> Result<(Word, Wire), DialError> {
        let asking = async {
            let mut wire = self.dialer.dial(&Endpoint::Tcp(address.clone()), Expect::Anything).await?;
            let word = self.ask(&mut wire).await.map_err(|error| error.named(address))?;
            Ok((word, wire))
        };
        let late = |_| Err(format!("{address}: no answer within {SENTINEL_TIME_MAX:?}").into());
        timeout(SENTINEL_TIME_MAX, asking).await.unwrap_or_else(late)
    }

    async fn ask(&self, wire: &mut Wire) -> Result<Word, DialError> {
        let name = self.name.as_bytes();
        let question =
            Packed::of(&[b"SENTINEL", b"get-master-addr-by-name", name]).and(&[b"SENTINEL", b"MASTER", name]);
        let late = |_| format!("no answer within {SENTINEL_TIME_MAX:?}");
        let asking = timeout(SENTINEL_TIME_MAX, wire.ask(&question));
        let replies = asking.await.map_err(late)?.map_err(|error| error.to_string())?;
        match replies.as_slice() {
            [Reply::Error(error), _] => Err(DialError::refused(error)),
            [address, master] => {
                word(address, master).ok_or_else(|| format!("it knows no primary named {:?}", self.name).into())
            }
            _ => Err("it does not answer like a Sentinel".to_owned().into()),
        }
    }

    /// Starts watching for a switch on behalf of this node, unless somebody watches.
    pub(super) fn watch(self: &Arc<Self>, node: &Arc<Node>) {
        if self.watched.load(Relaxed) || self.watched.swap(true, Relaxed) {
            return;
        }
        let watch = Watch(Arc::clone(self));
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(watch.run(Arc::clone(node)))),
            Err(_) => drop(watch),
        }
    }
}

fn word(address: &Reply, master: &Reply) -> Option<Word> {
    let text = |reply: &Reply| reply.text().map(str::to_owned);
    let (Reply::Array(address), Reply::Array(master)) = (address, master) else { return None };
    let [host, port] = address.as_slice() else { return None };
    let primary = Address { host: text(host)?, port: text(port)?.parse().ok()? };
    // Names and values take turns.
    let epoch = master.chunks_exact(2).find_map(|pair| match pair {
        [name, value] if name.text() == Some("config-epoch") => text(value)?.parse().ok(),
        _ => None,
    })?;
    Some(Word { epoch, primary })
}

/// The task that asks one Sentinel after the other. When its runtime ends, the next caller starts another.
struct Watch(Arc<Sentinels>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.watched.store(false, Relaxed);
    }
}

impl Watch {
    async fn run(self, node: Arc<Node>) {
        let sentinels = &self.0;
        let mut open: Vec<Option<Wire>> = sentinels.addresses.iter().map(|_| None).collect();
        let mut last = None;
        while !node.closed.load(Relaxed) {
            for (address, open) in sentinels.addresses.iter().zip(&mut open) {
                tokio::select! {
                    () = sleep(SENTINEL_PAUSE) => {}
                    () = sentinels.stop.notified() => return,
                }
                let word = match open {
                    Some(wire) => sentinels.ask(wire).await,
                    None => sentinels.ask_anew(address).await.map(|(word, wire)| {
                        *open = Some(wire);
                        word
                    }),
                };
                match word {
                    Ok(word) => {
                        let Some(primary) = sentinels.believe(&[word]).map(Endpoint::Tcp) else { continue };
                        node.cut_all_but(&primary);
                        if last.replace(primary.clone()) != Some(primary) {
                            node.retry_now();
                        }
                    }
                    Err(_) => *open = None,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::url::Login;
    use super::*;

    #[test]
    fn the_newest_word_counts() {
        let at = |port| Address { host: "h".to_owned(), port };
        let said = |words: &[(u64, u16)]| {
            words.iter().map(|&(epoch, port)| Word { epoch, primary: at(port) }).collect::<Vec<_>>()
        };
        let dialer = Dialer::new(None, &Login::default(), 0);
        let sentinels = Sentinels::new(vec![at(1), at(2), at(3)], "p".to_owned(), dialer);
        let check = |words: &[(u64, u16)]| sentinels.believe(&said(words)).map(|primary| primary.port);
        assert_eq!(check(&[]), None);
        assert_eq!(check(&[(1, 10), (2, 20), (1, 10)]), Some(20), "one knows of a later failover");
        assert_eq!(check(&[(1, 10)]), None, "one that was cut off");
        assert_eq!(check(&[(2, 20)]), Some(20));
        assert_eq!(check(&[(2, 40)]), None, "one that was set up by hand");
        assert_eq!(check(&[(0, 30), (0, 30)]), Some(30), "most of them were set up anew");
        assert_eq!(check(&[(0, 30), (0, 50), (0, 50)]), Some(50), "and most of them again");
    }
}
