//! The Lua files in this process, with as much of Redis as they use.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::LazyLock;

use crate::redis::link::Reply;
use mlua::{Function, Lua, MultiValue, Table, Value as LuaValue};

use super::{End, Runs, told_the_time};
use crate::redis::link::Script;
use crate::redis::script::Scripts;

/// As they run on Redis: states live two milliseconds longer than the whole milliseconds that they count.
static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| told_the_time(2));

/// What a key holds.
enum Held {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Sorted(BTreeMap<Vec<u8>, i64>),
}

/// The keys. None is ever forgotten because its time is over: a test asks when that would be.
#[derive(Default)]
struct Keys {
    held: HashMap<Vec<u8>, Held>,
    ends: HashMap<Vec<u8>, End>,
    now_nanos: u64,
    /// Fields of hashes that were asked for.
    fetched: usize,
}

impl Keys {
    fn expire(&mut self, key: &[u8], millis: &[u8]) {
        let millis = number(millis);
        assert!(millis > 0, "Redis takes no such time to live");
        let nanos = self.now_nanos + millis * 1_000_000;
        self.ends.insert(key.to_vec(), End::At { nanos, told_now: true });
    }
}

pub(super) struct InProcess {
    lua: Lua,
    keys: Rc<RefCell<Keys>>,
    compiled: HashMap<*const Script, Function>,
}

impl InProcess {
    pub(super) fn new() -> InProcess {
        let (lua, keys) = (Lua::new(), Rc::<RefCell<Keys>>::default());
        let redis = lua.create_table().unwrap();
        let of_call = Rc::clone(&keys);
        let call = move |lua: &Lua, words: MultiValue| call(lua, &mut of_call.borrow_mut(), &words);
        redis.set("call", lua.create_function(call).unwrap()).unwrap();
        let error = |lua: &Lua, text: String| {
            let reply = lua.create_table()?;
            reply.set("err", text)?;
            Ok(reply)
        };
        redis.set("error_reply", lua.create_function(error).unwrap()).unwrap();
        lua.globals().set("redis", redis).unwrap();
        InProcess { lua, keys, compiled: HashMap::new() }
    }

    /// How many fields of hashes the scripts asked for so far, whether they were there or not.
    pub(super) fn fetched(&self) -> usize {
        self.keys.borrow().fetched
    }
}

impl Runs for InProcess {
    fn restart(&mut self) {
        *self.keys.borrow_mut() = Keys::default();
    }

    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn end_of(&self, key: &[u8]) -> Option<End> {
        let keys = self.keys.borrow();
        match keys.held.contains_key(key) {
            true => Some(*keys.ends.get(key).expect("every key expires")),
            false => Some(End::Gone),
        }
    }

    fn run(&mut self, script: &Script, keys: &[&[u8]], args: &[Vec<u8>]) -> Reply {
        if let [.., seconds, nanos] = args {
            let mut keys = self.keys.borrow_mut();
            keys.now_nanos = number(seconds) * 1_000_000_000 + number(nanos);
            keys.ends.values_mut().for_each(|end| {
                if let End::At { told_now, .. } = end {
                    *told_now = false;
                }
            });
        }
        let list = |words: &mut dyn Iterator<Item = &[u8]>| {
            self.lua.create_sequence_from(words.map(|word| self.lua.create_string(word).unwrap())).unwrap()
        };
        self.lua.globals().set("KEYS", list(&mut keys.iter().copied())).unwrap();
        self.lua.globals().set("ARGV", list(&mut args.iter().map(Vec::as_slice))).unwrap();
        let lua = &self.lua;
        let compile = || lua.load(script.text()).into_function().unwrap();
        let function = self.compiled.entry(std::ptr::from_ref(script)).or_insert_with(compile);
        value_of(function.call::<LuaValue>(()).unwrap())
    }
}

/// A reply as Redis makes it of a value of Lua.
fn value_of(value: LuaValue) -> Reply {
    match value {
        LuaValue::Integer(number) => Reply::Int(number),
        LuaValue::Number(number) => Reply::Int(number as i64),
        LuaValue::String(text) => Reply::Bulk(text.as_bytes().to_vec().into()),
        LuaValue::Table(table) if table.contains_key("err").unwrap() => {
            Reply::Simple(table.get::<String>("err").unwrap().into())
        }
        LuaValue::Table(table) => Reply::Array(table.sequence_values().map(|value| value_of(value.unwrap())).collect()),
        _ => Reply::Nil,
    }
}

fn word(value: &LuaValue) -> Vec<u8> {
    match value {
        LuaValue::String(text) => text.as_bytes().to_vec(),
        LuaValue::Integer(number) => number.to_string().into_bytes(),
        LuaValue::Number(number) => format!("{number}").into_bytes(),
        other => panic!("redis.call was given {other:?}"),
    }
}

fn number(digits: &[u8]) -> u64 {
    let digits = std::str::from_utf8(digits).unwrap();
    digits.parse().unwrap_or_else(|_| panic!("{digits:?} is no whole number"))
}

fn signed(digits: &[u8]) -> i64 {
    let digits = std::str::from_utf8(digits).unwrap();
    digits.parse().unwrap_or_else(|_| panic!("{digits:?} is no whole number"))
}

fn call(lua: &Lua, keys: &mut Keys, words: &MultiValue) -> mlua::Result<LuaValue> {
    let words: Vec<Vec<u8>> = words.iter().map(word).collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let found = |value: Option<&Vec<u8>>| match value {
        Some(value) => Ok(LuaValue::String(lua.create_string(value)?)),
        None => Ok(LuaValue::Boolean(false)),
    };
    let counted = |count: usize| Ok(LuaValue::Integer(count as i64));
    match &words[..] {
        [b"GET", key] => match keys.held.get(*key) {
            Some(Held::Text(text)) => found(Some(text)),
            None => found(None),
            Some(Held::Hash(_) | Held::Sorted(_)) => panic!("GET of what is no text"),
        },
        [b"SET", key, value, b"PX", millis] => {
            keys.held.insert(key.to_vec(), Held::Text(value.to_vec()));
            keys.expire(key, millis);
            Ok(LuaValue::Boolean(true))
        }
        [b"SET", key, value, b"KEEPTTL"] => {
            assert!(keys.ends.contains_key(*key), "it has no time to live");
            keys.held.insert(key.to_vec(), Held::Text(value.to_vec()));
            Ok(LuaValue::Boolean(true))
        }
        [b"DEL", key] => {
            keys.ends.remove(*key);
            counted(usize::from(keys.held.remove(*key).is_some()))
        }
        [b"EXISTS", key] => counted(usize::from(keys.held.contains_key(*key))),
        [b"PEXPIRE", key, millis] => {
            let is_there = keys.held.contains_key(*key);
            if is_there {
                keys.expire(key, millis);
            }
            counted(usize::from(is_there))
        }
        [b"HGET", key, field] => {
            keys.fetched += 1;
            found(hash(keys, key).get(*field))
        }
        [b"HMGET", key, fields @ ..] => {
            keys.fetched += fields.len();
            let values: Table = lua.create_table()?;
            for (place, field) in fields.iter().enumerate() {
                values.set(place + 1, found(hash(keys, key).get(*field))?)?;
            }
            Ok(LuaValue::Table(values))
        }
        [b"HLEN", key] => counted(hash(keys, key).len()),
        [b"HSET", key, pairs @ ..] if !pairs.is_empty() && pairs.len() % 2 == 0 => {
            let held = keys.held.entry(key.to_vec()).or_insert_with(|| Held::Hash(BTreeMap::new()));
            let Held::Hash(fields) = held else { panic!("HSET of what is no hash") };
            pairs.chunks(2).for_each(|pair| drop(fields.insert(pair[0].to_vec(), pair[1].to_vec())));
            counted(pairs.len() / 2)
        }
        [b"HDEL", key, gone @ ..] => {
            if let Some(Held::Hash(fields)) = keys.held.get_mut(*key) {
                gone.iter().for_each(|field| drop(fields.remove(*field)));
                if fields.is_empty() {
                    keys.held.remove(*key);
                    keys.ends.remove(*key);
                }
            }
            counted(1)
        }
        [b"ZADD", key, score, member] => {
            counted(usize::from(sorted(keys, key).insert(member.to_vec(), signed(score)).is_none()))
        }
        [b"ZSCORE", key, member] => {
            found(sorted(keys, key).get(*member).map(|score| score.to_string().into_bytes()).as_ref())
        }
        [b"ZCARD", key] => counted(sorted(keys, key).len()),
        [b"ZREM", key, member] => counted(usize::from(sorted(keys, key).remove(*member).is_some())),
        [b"ZREMRANGEBYSCORE", key, least, most] => {
            sorted(keys, key).retain(|_, score| !(signed(least)..=signed(most)).contains(score));
            counted(0)
        }
        [b"ZRANGE", key, place, same, b"WITHSCORES"] if place == same => {
            let mut ordered: Vec<(i64, &Vec<u8>)> =
                sorted(keys, key).iter().map(|(member, score)| (*score, member)).collect();
            ordered.sort();
            let found = if *place == b"-1" { ordered.pop() } else { ordered.get(number(place) as usize).copied() };
            let pair = found.map(|(score, member)| [member.clone(), score.to_string().into_bytes()]);
            let words = pair.iter().flatten().map(|word| lua.create_string(word)).collect::<mlua::Result<Vec<_>>>()?;
            Ok(LuaValue::Table(lua.create_sequence_from(words)?))
        }
        other => panic!("redis.call was given {other:?}"),
    }
}

fn hash<'k>(keys: &'k Keys, key: &[u8]) -> &'k BTreeMap<Vec<u8>, Vec<u8>> {
    static EMPTY: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    match keys.held.get(key) {
        Some(Held::Hash(fields)) => fields,
        None => &EMPTY,
        Some(Held::Text(_) | Held::Sorted(_)) => panic!("it is no hash"),
    }
}

fn sorted<'k>(keys: &'k mut Keys, key: &[u8]) -> &'k mut BTreeMap<Vec<u8>, i64> {
    match keys.held.entry(key.to_vec()).or_insert_with(|| Held::Sorted(BTreeMap::new())) {
        Held::Sorted(members) => members,
        Held::Text(_) | Held::Hash(_) => panic!("it is no sorted set"),
    }
}
