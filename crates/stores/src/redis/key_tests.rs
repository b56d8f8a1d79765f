//! Names are pinned, can be read back, and so are different for different states.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{
    Calendar, CalendarPeriod, Charge, Key, KeyBuf, Limit, Namespace, Op, Placement, Purpose, Rate, agreed_hash,
    bounds::KEY_BYTES_MAX,
};

use super::key::{NAME_BYTES_MAX, bulletin, name, permits};
use super::link::bounds::PREFIX_BYTES_MAX;

const DAY: Duration = Duration::from_secs(86_400);

fn key_of(bytes: &[u8]) -> Key<'_> {
    if bytes.is_empty() { Key::ALL } else { Key::new(bytes).unwrap() }
}

fn named(tag: &[u8], namespace: &Namespace, limit: &Limit, key: &[u8]) -> String {
    let placement = Placement { tag, ..Placement::default() };
    let charge = Charge::new(key_of(key), limit, Op::Peek).within(namespace).placed(placement);
    String::from_utf8(name("tidegate", &charge)).expect("a name is text")
}

fn parts(parts: &[&[u8]]) -> Vec<u8> {
    KeyBuf::from_parts(parts).unwrap().as_key().as_bytes().to_vec()
}

/// A key of an Envoy file: the unit, then for each entry its key, a letter and its value or pattern.
fn entries(unit: &str, all: &[(&str, u8, &str)]) -> Vec<u8> {
    let mut bytes = parts(&[unit.as_bytes()]);
    for (key, kind, value) in all {
        bytes.extend(parts(&[key.as_bytes()]));
        bytes.push(*kind);
        bytes.extend(parts(&[value.as_bytes()]));
    }
    bytes
}

fn rule(names: &[&str]) -> Namespace {
    Namespace::named(Purpose::Rule, names)
}

/// Redis keeps these names for as long as windows are, and all nodes of all versions must agree: they never change.
#[test]
fn names_never_change() {
    let (per_user, root) = (rule(&["perf", "user_id", ""]), Namespace::root().clone());
    let day = Limit::fixed_window(5, DAY).unwrap();
    let gcra: Limit = "5/minute".parse().unwrap();
    let user = parts(&[b"00010082010"]);
    let of = Namespace::of;
    let (per_method, ann) = (rule(&["api", "per-user", "burst"]), parts(&[b"ann"]));
    let octets = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    let mut all = HashSet::new();
    let digest: Vec<u8> =
        [0xaf13_49b9_f5f9_a1a6_u64, 0xa040_4dea_36dc_c949, 0x9bcb_25c9_adc1_12b7, 0xcc9a_93ca_e41f_3262]
            .into_iter()
            .flat_map(u64::to_be_bytes)
            .collect();
    let address_6 = |text: &str| parts(&[&text.parse::<Ipv6Addr>().unwrap().octets(), b"x"]);
    for (tag, namespace, limit, key, expected) in [
        ("", per_user.clone(), day, user.clone(), "{}perf:user_id:w1d:00010082010"),
        ("", per_user.clone(), gcra, user.clone(), "{}perf:user_id:b:00010082010"),
        ("user:0f", per_user.clone(), gcra, user.clone(), "{user:0f}perf:user_id:b:00010082010"),
        ("{x} y", per_user.clone(), gcra, user, "{%7Bx%7D%20y}perf:user_id:b:00010082010"),
        ("", per_user.clone(), gcra, vec![], "{}perf:user_id:b"),
        ("", per_user.clone(), gcra, parts(&[b""]), "{}perf:user_id:b:"),
        ("", rule(&["a/b", "c:d", "e f"]), gcra, parts(&[b"a:b", b"/c?d=e"]), "{}a%2Fb:c%3Ad/e%20f:b:a%3Ab:/c?d=e"),
        ("", per_user.clone(), gcra, parts(&["Jörg 日本".as_bytes()]), "{}perf:user_id:b:Jörg%20日本"),
        ("", per_user.clone(), gcra, parts(&[b"a\0\r\n{b}%"]), "{}perf:user_id:b:a%00%0D%0A%7Bb%7D%25"),
        ("", per_user.clone(), gcra, parts(&[&octets("97.98.99.100")]), "{}perf:user_id:b:abcd"),
        ("", per_user.clone(), gcra, address_6("2001:db8::1"), "{}perf:user_id:b:[2001:db8::1]:x"),
        ("", per_user.clone(), gcra, parts(&[b"[a]"]), "{}perf:user_id:b:%5Ba]"),
        ("", per_method, gcra, parts(&[&octets("10.20.0.255"), b"GET"]), "{}api:per-user/burst:b:[10.20.0.255]:GET"),
        ("", rule(&["api", "all", ""]), gcra, vec![], "{}api:all:b"),
        (
            &format!("user:{:016x}", agreed_hash(&ann)),
            rule(&["api", "per-user", ""]),
            Limit::token_bucket(Rate::per_second(5).unwrap(), 5).unwrap(),
            ann.clone(),
            "{user:f9e19fb659aa0399}api:per-user:bt:ann",
        ),
        ("", per_user, gcra, b"odd".to_vec(), "{}perf:user_id:b=odd"),
        (
            "",
            rule(&["perf", ""]),
            day,
            entries("day", &[("user_id", b'v', "00010082010")]),
            "{}perf::w1d.day:user_id:00010082010",
        ),
        (
            "",
            rule(&["perf", ""]),
            gcra,
            entries("hour", &[("a=b", b'v', "c=d:"), ("path", b'p', "/api/*")]),
            "{}perf::b.hour:a%3Db:c=d%3A:path=/api/*",
        ),
        (
            "",
            rule(&["perf", ""]),
            Limit::fixed_window(5, DAY / 24).unwrap(),
            entries("hour", &[("path", b'p', "/api/*")]),
            "{}perf::w1h.hour:path=/api/*",
        ),
        ("", of(Purpose::Caller), gcra, b"login:42".to_vec(), "{}/caller:b=login:42"),
        ("", of(Purpose::RequestLimit), gcra, parts(&[b"api", b"user", b"ann"]), "{}/request:b:api:user:ann"),
        ("", of(Purpose::AnyBlock), gcra, vec![], "{}/any_block:b"),
        (
            "",
            Namespace::named(Purpose::Penalty, &["api", "per-user", ""]),
            gcra,
            ann.clone(),
            "{}/penalty:api:per-user:b:ann",
        ),
        (
            "",
            Namespace::named(Purpose::Block, &["api", "per-user", ""]),
            gcra,
            ann.clone(),
            "{}/block:api:per-user:b:ann",
        ),
        ("", Namespace::named(Purpose::Block, &["api", "x", "y"]), gcra, parts(&[b"a"]), "{}/block:api:x/y:b:a"),
        ("", root.clone(), gcra, b"ann".to_vec(), "{}:b=ann"),
        ("", rule(&["api", "uploads", ""]), gcra, vec![0xff, 0xff], "{}api:uploads:b~missing"),
        (
            "",
            rule(&["api", "uploads", ""]),
            gcra,
            [&[0xff, 0xfe][..], &digest].concat(),
            "{}api:uploads:b~af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
        ),
        ("", rule(&["api", "uploads", ""]), gcra, vec![0xff, 0xfe, 0], "{}api:uploads:b=%FF%FE%00"),
        ("", root, day, parts(&[b"ann"]), "{}:w1d:ann"),
        ("", rule(&["api"]), gcra, parts(&[b"ann"]), "{}/=r%03api:b:ann"),
    ] {
        let expected = format!("tidegate{expected}");
        assert_eq!(named(tag.as_bytes(), &namespace, &limit, &key), expected);
        all.insert(expected);
    }
    let notices = |topic| bulletin("tidegate", topic).map(|name| String::from_utf8(name).unwrap());
    let expected = ["tidegate{top/shared/0}/bulletin:ends", "tidegate{top/shared/0}/bulletin:notices"];
    assert_eq!(notices("top/shared/0"), expected);
    assert_eq!(notices("a}b")[0], "tidegate{a%7Db}/bulletin:ends");
    all.extend(expected.map(str::to_owned));
    // The examples of the specification are among them.
    let examples = include_str!("../../../../spec/names.md").split('`').filter(|text| text.starts_with("tidegate{"));
    let unknown: Vec<&str> = examples.filter(|example| !all.contains(*example)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let layer = permits("x", &Namespace::of(Purpose::Layer), key_of(b"reports"));
    assert_eq!(String::from_utf8(layer).unwrap(), "x{}/layer:permits=reports");
    let nodes = permits("tidegate", &Namespace::of(Purpose::Nodes), key_of(b""));
    assert_eq!(String::from_utf8(nodes).unwrap(), "tidegate{}/nodes:permits");
    let uploads = permits("x", &rule(&["api", "uploads", ""]), key_of(&parts(&[b"ann"])));
    assert_eq!(String::from_utf8(uploads).unwrap(), "x{}api:uploads:permits:ann");
}

#[test]
fn codes_never_change() {
    let (rate, calendar) = (Rate::per_second(1).unwrap(), |period, zone, anchor| {
        Limit::calendar_window(5, Calendar::new(period, zone, anchor).unwrap()).unwrap()
    });
    let window = |nanos| Limit::fixed_window(1, Duration::from_nanos(nanos)).unwrap();
    for (limit, code) in [
        (Limit::gcra(rate, 5).unwrap(), "b"),
        (Limit::gcra(rate, 9).unwrap(), "b"),
        (Limit::token_bucket(rate, 5).unwrap(), "bt"),
        (Limit::leaky_bucket(rate, 5).unwrap(), "bl"),
        (Limit::sliding_counter(5, DAY / 1_440).unwrap(), "c1m"),
        (Limit::sliding_log(5, DAY / 24).unwrap(), "l1h"),
        (Limit::sliced_window(5, DAY * 7).unwrap(), "s7d"),
        (Limit::sliced_window_of(5, DAY * 7, 7).unwrap(), "s7d"),
        (window(86_400_000_000_000), "w1d"),
        (window(90_000_000_000), "w90s"),
        (window(1_500_000_000), "w1500ms"),
        (window(1_500_000), "w1500us"),
        (window(86_400_000_000_001), "w86400000000001ns"),
        (calendar(CalendarPeriod::Day, "UTC", None), "cal;day;UTC;0000"),
        (calendar(CalendarPeriod::Day, "Asia/Tokyo", Some("09:30")), "cal;day;Asia/Tokyo;0930"),
        (calendar(CalendarPeriod::Week, "Etc/GMT+5", Some("Friday")), "cal;week;Etc/GMT+5;friday"),
        (calendar(CalendarPeriod::Month, "Europe/Berlin", Some("15")), "cal;month;Europe/Berlin;15"),
        (calendar(CalendarPeriod::Year, "UTC", Some("04-06")), "cal;year;UTC;04-06"),
    ] {
        assert_eq!(named(b"", Namespace::root(), &limit, b"x"), format!("tidegate{{}}:{code}=x"));
    }
}

/// What a name was made of: tag, namespace, code and key.
type Pieces = (Vec<u8>, Vec<u8>, String, Vec<u8>);

/// Reads a name back.
fn pieces(name: &str) -> Option<Pieces> {
    let (tag, rest) = name.strip_prefix("tidegate{")?.split_once('}')?;
    let (namespace, rest) = read_namespace(rest)?;
    let end = rest.find([':', '=', '.', '~']).unwrap_or(rest.len());
    let (code, key) = rest.split_at(end);
    Some((unescaped(tag)?, namespace, code.to_owned(), read_key(key)?))
}

fn read_namespace(text: &str) -> Option<(Vec<u8>, &str)> {
    if let Some(rest) = text.strip_prefix(':') {
        return Some((vec![], rest));
    }
    if let Some(rest) = text.strip_prefix("/=") {
        let (bytes, rest) = rest.split_once(':')?;
        return Some((unescaped(bytes)?, rest));
    }
    let alone = [
        ("any_block", Purpose::AnyBlock),
        ("request", Purpose::RequestLimit),
        ("caller", Purpose::Caller),
        ("layer", Purpose::Layer),
        ("nodes", Purpose::Nodes),
    ];
    for (word, purpose) in alone {
        if let Some(rest) = text.strip_prefix(&format!("/{word}:")) {
            return Some((Namespace::of(purpose).as_bytes().to_vec(), rest));
        }
    }
    let named = [("/penalty:", Purpose::Penalty), ("/block:", Purpose::Block), ("", Purpose::Rule)];
    let (purpose, text) = named.into_iter().find_map(|(word, purpose)| Some((purpose, text.strip_prefix(word)?)))?;
    let (domain, rest) = text.split_once(':')?;
    let (rule, rest) = rest.split_once(':')?;
    let (rule, limit) = rule.split_once('/').unwrap_or((rule, ""));
    let names = [unescaped(domain)?, unescaped(rule)?, unescaped(limit)?];
    let names = if rule.is_empty() { &names[..2] } else { &names[..] };
    // Names are any bytes here, also such as no policy has.
    let mut bytes = vec![purpose as u8];
    for name in names {
        bytes.push(u8::try_from(name.len()).ok().filter(|length| *length < 0x80)?);
        bytes.extend_from_slice(name);
    }
    Some((bytes, rest))
}

fn read_key(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(first) = text.chars().next() else { return Some(bytes) };
    if let Some(digest) = text.strip_prefix('~') {
        let byte = |place: usize| u8::from_str_radix(digest.get(place..place + 2)?, 16).ok();
        return match digest {
            "missing" => Some(vec![0xff, 0xff]),
            _ => [0xff, 0xfe].into_iter().map(Some).chain((0..64).step_by(2).map(byte)).collect(),
        };
    }
    if let Some(raw) = text.strip_prefix('=') {
        return read_value(raw, None).map(|(value, _)| value);
    }
    let mut rest = text;
    if let Some(text) = text.strip_prefix('.') {
        let (unit, after) = text.split_at(text.find(':').unwrap_or(text.len()));
        bytes.extend(parts(&[&unescaped(unit)?]));
        rest = after;
    }
    while let Some(text) = rest.strip_prefix(':') {
        let mut text = text;
        if first == '.' {
            let (entry, after) = text.split_at(text.find([':', '='])?);
            bytes.extend(parts(&[&unescaped(entry)?]));
            bytes.push(if after.starts_with(':') { b'v' } else { b'p' });
            text = &after[1..];
        }
        let (value, after) = read_value(text, Some(':'))?;
        bytes.extend(parts(&[&value]));
        rest = after;
    }
    rest.is_empty().then_some(bytes)
}

fn read_value(text: &str, mark: Option<char>) -> Option<(Vec<u8>, &str)> {
    if let Some((address, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        let v4 = address.parse::<Ipv4Addr>().map(|address| address.octets().to_vec());
        return Some((
            v4.or_else(|_| address.parse::<Ipv6Addr>().map(|address| address.octets().to_vec())).ok()?,
            rest,
        ));
    }
    let end = mark.and_then(|mark| text.find(mark)).unwrap_or(text.len());
    Some((unescaped(&text[..end])?, &text[end..]))
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut whole = Vec::new();
    while let Some(byte) = bytes.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        whole.push(match byte {
            b'%' => u8::try_from(digit(bytes.next())? * 16 + digit(bytes.next())?).ok()?,
            byte => byte,
        });
    }
    Some(whole)
}

fn any_namespace() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![Just(""), Just("a"), Just("a:b"), Just("/"), Just("="), Just("é%"), Just("b"), Just("w1d")];
    let purpose = proptest::sample::select(Purpose::ALL.to_vec());
    let written = (purpose, prop::collection::vec(name, 0..5)).prop_map(|(purpose, names)| match &names[..] {
        [] => Namespace::of(purpose).as_bytes().to_vec(),
        names => Namespace::named(purpose, names).as_bytes().to_vec(),
    });
    prop_oneof![8 => written, 1 => Just(vec![]), 1 => odd_bytes(8)]
}

/// Bytes that mean something to those who read them.
fn odd_bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = proptest::sample::select(b"\0\x01\x02\x03 \r\n%:=./[]{}avpbr1w\x7f\x80\xc3\xa9\xff".to_vec());
    prop::collection::vec(byte, 0..most)
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        odd_bytes(6),
        "[a-c:=%]{0,4}".prop_map(String::into_bytes),
        any::<[u8; 4]>().prop_map(Vec::from),
        any::<[u8; 16]>().prop_map(Vec::from),
        "\\PC{0,4}".prop_map(String::into_bytes),
    ];
    let parts_of = prop::collection::vec(value.clone(), 1..4).prop_map(|all| {
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        parts(&all)
    });
    let entry = ("[a=:%]{0,3}", prop_oneof![Just(b'v'), Just(b'p'), Just(b'x')], "[a=:%\\[]{0,3}");
    let of_entries = ("[a-z.:=]{0,3}", prop::collection::vec(entry, 0..3)).prop_map(|(unit, all)| {
        let all: Vec<(&str, u8, &str)> = all.iter().map(|(key, kind, value)| (&**key, *kind, &**value)).collect();
        entries(&unit, &all)
    });
    let digest = any::<[u8; 32]>().prop_map(|digest| [&[0xff, 0xfe][..], &digest].concat());
    prop_oneof![parts_of, of_entries, value, digest, Just(vec![0xff, 0xff]), Just(vec![])]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// What can be read back from its name shares that with nothing else.
    #[test]
    fn a_name_is_read_back(tag in odd_bytes(4), namespace in any_namespace(), key in any_key(), day in any::<bool>()) {
        let limit = if day { Limit::fixed_window(5, DAY).unwrap() } else { "5/minute".parse().unwrap() };
        let name = named(&tag, &Namespace::from_bytes(&namespace), &limit, &key);
        let code = if day { "w1d" } else { "b" };
        prop_assert!(!name.contains(|character: char| character.is_control() || character.is_whitespace()), "{name:?}");
        prop_assert_eq!(pieces(&name), Some((tag, namespace, code.to_owned(), key)), "{}", name);
    }
}

/// The longest that an engine can ask for: all bytes escaped, and a namespace and key that have [`KEY_BYTES_MAX`] bytes in all.
#[test]
fn names_are_bounded() {
    let (prefix, text) = ("p".repeat(PREFIX_BYTES_MAX), " ".repeat(1_024));
    let (tag, namespace) = (format!("{text}:0123456789abcdef"), rule(&[&text, &text, &text]));
    let key = vec![b' '; KEY_BYTES_MAX - namespace.as_bytes().len()];
    let calendar = Calendar::new(CalendarPeriod::Month, "America/Argentina/ComodRivadavia", Some("31")).unwrap();
    let limit = Limit::calendar_window(5, calendar).unwrap();
    let placement = Placement { tag: tag.as_bytes(), ..Placement::default() };
    let charge = Charge::new(key_of(&key), &limit, Op::Peek).within(&namespace).placed(placement);
    let length = name(&prefix, &charge).len();
    assert!(length <= NAME_BYTES_MAX && length > NAME_BYTES_MAX * 9 / 10, "{length}");
}

#[test]
fn a_key_does_not_choose_its_slot() {
    let gcra: Limit = "5/minute".parse().unwrap();
    let slot = |key: &str| super::link::slot(named(b"", Namespace::root(), &gcra, key.as_bytes()).as_bytes());
    let slots: HashSet<u16> = (0..100).map(|number| slot(&format!("{{x}}{number}"))).collect();
    assert!(slots.len() > 90, "{} slots", slots.len());
}
