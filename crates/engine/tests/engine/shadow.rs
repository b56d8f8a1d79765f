//! Rules that watch and deny nothing.

use tidegate_policy::{Ask, Descriptor, Mode};

use crate::bench::{Bench, PER_USER, remaining};

#[test]
fn a_shadow_rule_denies_nothing_and_counts_what_it_would() {
    let bench = Bench::new(&PER_USER.replace("limit:", "mode: shadow\n  limit:"));
    for _ in 0..5 {
        assert!(bench.one(&[("user", "ann")]).is_allowed());
    }
    let counts = bench.engine.rules()[0].counts;
    assert_eq!((counts.allowed, counts.denied, counts.shadow_denied), (3, 0, 2));
    assert_eq!((counts.hits, counts.within_limit, counts.over_limit, counts.shadow), (5, 3, 2, 2));
    let last = bench.one(&[("user", "ann")]);
    assert!(!last.judgements().next().unwrap().answer.is_allowed(), "the answer still tells");
}

#[test]
fn all_in_shadow_denies_nothing_and_tells_what_it_would() {
    let bench = Bench::in_shadow(PER_USER);
    let last = (0..4).map(|_| bench.one(&[("user", "ann")])).last().unwrap();
    assert!(last.is_allowed() && last.denial().is_none() && last.retry().is_none());
    assert!(last.judgements().next().unwrap().denies(), "each judgement stays as it is");
    let counts = bench.engine.rules()[0].counts;
    assert_eq!((counts.allowed, counts.denied, counts.shadow_denied), (3, 0, 1));
    assert_eq!((counts.over_limit, counts.shadow), (1, 1));
}

#[test]
fn the_mode_that_counts_is_told() {
    let modes = |bench: &Bench| -> Vec<Mode> { bench.one(&[]).judgements().map(|judgement| judgement.mode).collect() };
    let rules = "
- {name: on, limit: 9/minute}
- {name: watch, mode: shadow, limit: 9/minute}
- {name: quota, mode: shadow, quota: true, limit: 9/minute}
";
    assert_eq!(modes(&Bench::new(rules)), [Mode::Enforce, Mode::Shadow, Mode::Shadow]);
    let bench = Bench::in_shadow(rules);
    assert_eq!(modes(&bench), [Mode::Shadow; 3]);
    let view = &bench.engine.rules()[0];
    assert_eq!((view.mode, view.configured), (Mode::Shadow, Some(Mode::Enforce)));
    assert_eq!(bench.engine.set_mode("api", "on", Some(Mode::Enforce)), Ok(Mode::Shadow), "nothing can deny");
    assert_eq!(bench.engine.set_mode("api", "on", Some(Mode::Off)), Ok(Mode::Off));
    assert_eq!(modes(&bench), [Mode::Shadow; 2]);
}

#[test]
fn a_rule_in_shadow_does_not_refuse_a_long_key() {
    let rules = PER_USER.replace("{entry: user}", "{expression: entries.user}");
    let bench = Bench::new(&rules.replace("limit:", "mode: shadow\n  limit:"));
    let outcome = bench.one(&[("user", &"x".repeat(8_193))]);
    assert!(outcome.is_allowed());
    assert_eq!(bench.engine.rules()[0].counts.shadow_denied, 1);
}

#[test]
fn a_rule_is_switched_while_it_runs_and_a_reload_keeps_that() {
    let bench = Bench::new(PER_USER);
    for _ in 0..3 {
        bench.one(&[("user", "ann")]);
    }
    assert!(!bench.one(&[("user", "ann")]).is_allowed());
    assert_eq!(bench.engine.set_mode("api", "user", Some(Mode::Shadow)), Ok(Mode::Shadow));
    assert!(bench.one(&[("user", "ann")]).is_allowed());
    bench.engine.set_mode("api", "user", Some(Mode::Off)).unwrap();
    assert!(bench.one(&[("user", "ann")]).judgements().next().is_none());
    bench.install(PER_USER);
    let rule = &bench.engine.rules()[0];
    assert_eq!((rule.mode, rule.configured), (Mode::Off, Some(Mode::Enforce)));
    assert_eq!(bench.engine.set_mode("api", "user", None), Ok(Mode::Enforce));
    assert!(!bench.one(&[("user", "ann")]).is_allowed());
    let unknown = bench.engine.set_mode("api", "none", None).unwrap_err();
    assert_eq!(unknown.to_string(), "rule: there is no `none` in domain `api`");
}

#[test]
fn a_shadow_rule_of_two_limits_takes_from_both_or_from_none() {
    let limits = "limits: [{name: minute, rate: 5/minute}, {name: day, rate: 1/day}]";
    let bench = Bench::new(&format!("- {{name: two, mode: shadow, {limits}}}\n- {{name: all, limit: 9/minute}}"));
    assert_eq!(remaining(&bench.one(&[])), [4, 0, 8]);
    let over = bench.one(&[]);
    assert!(over.is_allowed());
    assert_eq!(remaining(&over), [4, 0, 7], "enforced, it would have denied and cost nothing");
    let counts = bench.engine.rules()[0].counts;
    assert_eq!((counts.allowed, counts.shadow_denied), (1, 1));
}

#[test]
fn a_shadow_rule_of_two_limits_counts_one_key_in_order() {
    let limits = "limits: [{name: minute, rate: 5/minute}, {name: day, rate: 4/day}]";
    let bench = Bench::new(&format!("- {{name: two, mode: shadow, {limits}}}"));
    let of = |units| Descriptor { ask: Some(Ask::Take(units)), ..Descriptor::default() };
    bench.ask(&[of(2), of(3), of(1)], 1);
    assert_eq!(bench.remaining(&[]), [2, 1], "3 do not fit after 2, but 1 does");
}
