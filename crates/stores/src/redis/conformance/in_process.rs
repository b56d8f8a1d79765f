//! The Lua files in this process, with as much of Redis as they use.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Table, Value as LuaValue};
use redis::Value;

use super::Runs;
use crate::redis::link::Script;

/// What a key holds.
enum Held {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

type Keys = Rc<RefCell<HashMap<Vec<u8>, Held>>>;

pub(super) struct InProcess {
    lua: Lua,
    keys: Keys,
    compiled: HashMap<*const Script, Function>,
}

impl InProcess {
    pub(super) fn new() -> InProcess {
        let (lua, keys) = (Lua::new(), Keys::default());
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
}

impl Runs for InProcess {
    fn restart(&mut self) {
        self.keys.borrow_mut().clear();
    }

    fn run(&mut self, script: &Script, keys: &[&[u8]], args: &[Vec<u8>]) -> Value {
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
fn value_of(value: LuaValue) -> Value {
    match value {
        LuaValue::Integer(number) => Value::Int(number),
        LuaValue::Number(number) => Value::Int(number as i64),
        LuaValue::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        LuaValue::Table(table) if table.contains_key("err").unwrap() => {
            Value::SimpleString(table.get::<String>("err").unwrap())
        }
        LuaValue::Table(table) => Value::Array(table.sequence_values().map(|value| value_of(value.unwrap())).collect()),
        _ => Value::Nil,
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

fn call(lua: &Lua, keys: &mut HashMap<Vec<u8>, Held>, words: &MultiValue) -> mlua::Result<LuaValue> {
    let words: Vec<Vec<u8>> = words.iter().map(word).collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let found = |value: Option<&Vec<u8>>| match value {
        Some(value) => Ok(LuaValue::String(lua.create_string(value)?)),
        None => Ok(LuaValue::Boolean(false)),
    };
    match &words[..] {
        [b"GET", key] => match keys.get(*key) {
            Some(Held::Text(text)) => found(Some(text)),
            None => found(None),
            Some(Held::Hash(_)) => panic!("GET of a hash"),
        },
        [b"SET", key, value, b"EX", seconds] => {
            assert!(std::str::from_utf8(seconds).unwrap().parse::<u64>().unwrap() > 0);
            keys.insert(key.to_vec(), Held::Text(value.to_vec()));
            Ok(LuaValue::Boolean(true))
        }
        [b"DEL", key] => Ok(LuaValue::Integer(i64::from(keys.remove(*key).is_some()))),
        [b"EXISTS", key] => Ok(LuaValue::Integer(i64::from(keys.contains_key(*key)))),
        [b"EXPIRE", key, seconds] => {
            assert!(std::str::from_utf8(seconds).unwrap().parse::<u64>().unwrap() > 0);
            Ok(LuaValue::Integer(i64::from(keys.contains_key(*key))))
        }
        [b"HGET", key, field] => found(hash(keys, key).get(*field)),
        [b"HMGET", key, fields @ ..] => {
            let values: Table = lua.create_table()?;
            for (place, field) in fields.iter().enumerate() {
                values.set(place + 1, found(hash(keys, key).get(*field))?)?;
            }
            Ok(LuaValue::Table(values))
        }
        [b"HSET", key, field, value] => {
            let held = keys.entry(key.to_vec()).or_insert_with(|| Held::Hash(BTreeMap::new()));
            let Held::Hash(fields) = held else { panic!("HSET of a text") };
            fields.insert(field.to_vec(), value.to_vec());
            Ok(LuaValue::Integer(1))
        }
        [b"HDEL", key, gone @ ..] => {
            if let Some(Held::Hash(fields)) = keys.get_mut(*key) {
                gone.iter().for_each(|field| drop(fields.remove(*field)));
                if fields.is_empty() {
                    keys.remove(*key);
                }
            }
            Ok(LuaValue::Integer(1))
        }
        other => panic!("redis.call was given {other:?}"),
    }
}

fn hash<'k>(keys: &'k HashMap<Vec<u8>, Held>, key: &[u8]) -> &'k BTreeMap<Vec<u8>, Vec<u8>> {
    static EMPTY: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    match keys.get(key) {
        Some(Held::Hash(fields)) => fields,
        None => &EMPTY,
        Some(Held::Text(_)) => panic!("a text is no hash"),
    }
}
