use super::*;

fn blocks() -> Blocks {
    Blocks::new(KeyHasher::random())
}

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

fn id(key: &[u8], kind: BlockKind) -> BlockId {
    BlockId { domain: "api".into(), rule: "r".into(), key: key.into(), kind }
}

fn block(key: &[u8], kind: BlockKind, since: u64, until: u64) -> Block {
    let node = Some("here".into());
    Block { id: id(key, kind), shape: 1, operator: None, node, since: at(since), until: at(until) }
}

fn key(key: &[u8]) -> RuleKey {
    ("api".into(), "r".into(), key.into())
}

#[test]
fn blocks_end_by_themselves() {
    let blocks = blocks();
    blocks.set(block(b"a", BlockKind::Operator, 0, 10), at(0));
    blocks.set(block(b"a", BlockKind::Penalty, 0, 20), at(0));
    assert_eq!([0, 9, 10, 19, 20].map(|now| blocks.in_force(at(now)).len()), [2, 2, 1, 1, 0]);
}

#[test]
fn a_later_block_takes_the_place_of_an_earlier_one() {
    let blocks = blocks();
    blocks.set(block(b"a", BlockKind::Operator, 0, 10), at(0));
    blocks.set(block(b"a", BlockKind::Operator, 5, 30), at(5));
    // What is only met does not.
    blocks.learn(Block { node: None, ..block(b"a", BlockKind::Operator, 6, 31) }, at(6));
    assert_eq!(blocks.in_force(at(6)), [block(b"a", BlockKind::Operator, 5, 30)]);
    blocks.learn(block(b"a", BlockKind::Operator, 40, 50), at(40));
    assert_eq!(blocks.in_force(at(40)).len(), 1, "the one before is over");
}

#[test]
fn what_was_lifted_is_forgotten_and_what_was_set_later_is_not() {
    let blocks = blocks();
    for kind in [BlockKind::Operator, BlockKind::Penalty] {
        blocks.set(block(b"a", kind, 5, 100), at(5));
    }
    blocks.set(block(b"b", BlockKind::Operator, 5, 100), at(5));
    blocks.lift(key(b"a"), at(5), at(5));
    assert_eq!(blocks.in_force(at(5)), [block(b"b", BlockKind::Operator, 5, 100)]);
    assert!(blocks.is_lifted(&block(b"a", BlockKind::Operator, 4, 100)), "as another node may say later");
    assert!(!blocks.is_lifted(&block(b"a", BlockKind::Operator, 6, 100)));
    blocks.set(block(b"a", BlockKind::Operator, 6, 100), at(6));
    blocks.learn_lifted(key(b"a"), at(5), at(6));
    assert_eq!(blocks.in_force(at(6)).len(), 2);
    assert_eq!(blocks.lifted(at(6)), [(key(b"a"), at(5))]);
    assert_eq!(blocks.lifted(at(1_000)), []);
}

#[test]
fn changes_are_counted_and_those_of_operators_apart() {
    let blocks = blocks();
    blocks.set(block(b"a", BlockKind::Penalty, 0, 10), at(0));
    blocks.learn(block(b"b", BlockKind::Penalty, 0, 10), at(0));
    assert_eq!(blocks.changes(), (1, 0));
    blocks.set(block(b"a", BlockKind::Operator, 0, 10), at(0));
    blocks.lift(key(b"a"), at(0), at(0));
    blocks.take_over(block(b"c", BlockKind::Operator, 0, 10), at(0));
    assert_eq!(blocks.changes(), (4, 2));
}

#[test]
fn the_table_is_bounded_and_operators_come_first() {
    let blocks = blocks();
    let penalty = |number: u64, until| block(&number.to_be_bytes(), BlockKind::Penalty, 0, until);
    for number in 0..50_000 {
        blocks.set(penalty(number, 100), at(0));
    }
    let listed = blocks.in_force(at(0)).len();
    assert!((BLOCKS_LISTED_MAX / 2..=BLOCKS_LISTED_MAX).contains(&listed), "{listed}");
    assert_eq!(blocks.unlisted(), 50_000 - listed as u64);
    for number in 0..100_u64 {
        blocks.set(block(&number.to_be_bytes(), BlockKind::Operator, 0, 50), at(0));
    }
    let of_operators = blocks.in_force(at(0)).iter().filter(|block| block.id.kind == BlockKind::Operator).count();
    assert_eq!(of_operators, 100);
    // Those that are over make room.
    blocks.set(penalty(60_000, 200), at(100));
    assert_eq!(blocks.in_force(at(100)), [penalty(60_000, 200)]);
    for number in 0..3_000_u64 {
        blocks.lift(key(&number.to_be_bytes()), at(100), at(100));
    }
    assert!(blocks.lifted(at(100)).len() <= LIFTED_MAX);
}
