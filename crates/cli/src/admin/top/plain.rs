//! One table of what the live view shows, for other programs.

use std::time::Duration;

use super::By;
use super::source::Source;
use super::view::{Keys, Rates, Row, View, key, rate, share};
use crate::admin::Problem;
use crate::admin::text::{escaped, shortened, table};

/// Most columns of a key: some are thousands of letters long.
const KEY_COLUMNS: usize = 100;

/// Looks twice, since rates are differences, and returns all rules with their heaviest keys.
pub(super) fn table_of(source: &Source, by: By, interval: Duration) -> Result<String, Problem> {
    let mut view = View::new(by);
    view.count(source.counted()?);
    std::thread::sleep(interval);
    view.count(source.counted()?);
    view.keys = source.top(by, None)?.map_or(Keys::Unsupported, |top| Keys::Known(None, top));
    Ok(shown(&view))
}

fn shown(view: &View) -> String {
    let rates: [fn(Rates) -> f64; 3] = [|rates| rates.allowed, |rates| rates.denied, |rates| rates.shadow_denied];
    let row = |row: &Row| {
        let [allowed, denied, shadow] = rates.map(|of| rate(row.rates, of));
        vec![row.title.clone(), row.mode.clone(), allowed, denied, shadow, row.counts.denied.to_string()]
    };
    let head = ["RULE", "MODE", "ALLOWED/s", "DENIED/s", "SHADOW/s", "DENIED"];
    let mut text = table(&head, view.rows().map(row).collect(), 2);
    if !view.stores.is_empty() {
        let store = |one: &crate::admin::status::StoreNode| {
            [&one.store, &one.node, one.state].map(|cell| escaped(cell).into_owned()).to_vec()
        };
        text += &format!("\n{}", table(&["STORE", "NODE", "STATE"], view.stores.iter().map(store).collect(), 3));
    }
    if matches!(view.keys, Keys::Unsupported) {
        return text + "\nno keys: the server does not support GET /v1/top\n";
    }
    let keys = view.rows().flat_map(|row| {
        let keys = view.keys_of(&row.name).unwrap_or_default().iter();
        keys.map(|one| {
            vec![
                row.title.clone(),
                shortened(&key(one), KEY_COLUMNS).into_owned(),
                one.requests.to_string(),
                one.denials.to_string(),
                share(one),
            ]
        })
    });
    let keys: Vec<Vec<String>> = keys.collect();
    match keys.is_empty() {
        true => text + "\nno keys: no requests in the last minute\n",
        false => text + "\n" + &table(&["RULE", "KEY", "REQUESTS", "DENIALS", "SHARE"], keys, 2),
    }
}
