use super::*;
#[test]
fn sizes() {
    use tidegate_core::*;
    let store = RedisStore::open(&"redis://127.0.0.1:1".parse().unwrap()).unwrap();
    let limit: Limit = "5/minute".parse().unwrap();
    let charges = [Charge::take(Key::new("a").unwrap(), &limit, 1)];
    let call = crate::Call::default();
    eprintln!("charge {}", size_of_val(&crate::Store::charge(&store, &call, &charges)));
    eprintln!("decide {}", size_of_val(&store.decide(&call, &charges)));
    eprintln!("charge_slot {}", size_of_val(&store.charge_slot(0, &[], &charges, store.term(&call))));
    eprintln!(
        "Decisions {} Result {} Charge {} Limit {} State {} Decision {}",
        size_of::<Decisions>(),
        size_of::<Result<Decisions, crate::StoreError>>(),
        size_of::<Charge>(),
        size_of::<Limit>(),
        size_of::<State>(),
        size_of::<Decision>()
    );
}
