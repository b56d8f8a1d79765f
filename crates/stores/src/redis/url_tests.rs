use proptest::prelude::*;

use super::*;

fn shown(url: &str) -> String {
    match url.parse::<Target>() {
        Ok(target) => {
            let Target { tls, authorities, login, database, prefix, budget, .. } = &target;
            let user = login.user.as_deref().unwrap_or("-");
            let password = login.password.as_ref().map_or("-", Secret::reveal);
            let (prefix, authorities) = (prefix.as_deref().unwrap_or("-"), authorities.as_deref());
            format!(
                "{target}  tls={tls} user={user} password={password} db={database} prefix={prefix} {budget:?} ca={authorities:?}"
            )
        }
        Err(error) => error.to_string(),
    }
}

fn table(urls: &[&str]) -> String {
    urls.iter().map(|url| format!("{url}\n    {}\n", shown(url))).collect()
}

#[test]
fn urls_that_are_right() {
    insta::assert_snapshot!(table(&[
        "redis://localhost",
        "REDIS://localhost:6380/2",
        "redis://:pass@10.0.0.1:1",
        "redis://user:@host",
        "redis://user:p%40ss%2Fw%3Ard@host/",
        "redis://[::1]",
        "redis://[fe80::1]:7000/15?prefix=edge:&timeout=25ms",
        "rediss://cache.example.com?ca=/etc/ssl/my%20ca.pem&timeout=1s",
        "valkey://host",
        "valkeys://host",
        "redis+unix:///run/redis.sock",
        "unix://user:pw@/run/redis.sock?db=4",
        "redis+sentinel://a,b:1,[::1]:2/mymaster",
        "rediss+sentinel://u:p@a/my%2Fmaster/3?sentinel_user=su&sentinel_password=sp",
        "redis+cluster://a:7000,b:7001",
        "valkeys+cluster://u:p@a/0",
    ]));
}

#[test]
fn urls_that_are_wrong() {
    insta::assert_snapshot!(table(&[
        "",
        "localhost:6379",
        "memory",
        "redis:6379",
        "valkey:6379/0",
        "redis:/localhost",
        "redis:localhost:6379",
        "rediss:",
        "http://localhost",
        "redis+tls://localhost",
        "rediss+unix:///run/redis.sock",
        "redis://",
        "redis://:6379",
        "redis://host:port",
        "redis://host:0",
        "redis://host:65536",
        "redis://::1:6379",
        "redis://[::1",
        "redis://[::1]6379",
        "redis://ho st",
        "redis://host/x",
        "redis://host/-1",
        "redis://host/10000",
        "redis://host/1/2",
        "redis://a,b",
        "redis+sentinel://a,b",
        "redis+sentinel://a,b/",
        "redis+sentinel://a,,b/m",
        "redis+sentinel://a/m/x",
        "redis+cluster://a/1",
        "redis+unix://host/run/redis.sock",
        "redis+unix:///",
        "redis+unix:///%FF",
        "redis://host?db=1",
        "redis://host?timeout=10",
        "redis://host?timeout=0ms",
        "redis://host?timeout=11s",
        "redis://host?timeout=10us",
        "redis://host?timeout=99999999999999999999s",
        "redis://host?prefix=",
        "redis://host?prefix={a}",
        "redis://host?prefix=a&prefix=b",
        "redis://host?max_connections=5",
        "redis://host?ca=/x",
        "redis://password@host",
        "redis://host?sentinel_password=hidden",
        "redis://host#1",
    ]));
}

#[test]
fn a_password_is_never_shown() {
    for url in [
        "redis://:sesame/@host",
        "redis://user:ses?ame@host",
        "redis://user:ses#ame@host",
        "redis://user:ses@ame@host",
        "redis://user:ses:ame@host",
        "redis://user:sesame%FF@host",
        "redis://user:sesame@host:port",
        "redis://user:sesame@",
        "redis://user:sesame@host/x",
        "redis+sentinel://a/m?sentinel_password=sesame%FF",
        "redis+sentinel://a/m?sentinel_password=sesame&sentinel_password=sesame",
        "sesame://user:sesame@host",
    ] {
        let error = url.parse::<Target>().unwrap_err().to_string();
        assert!(!error.contains("ses") && !error.contains("ame@"), "{url}: {error}");
    }
    let target: Target = "redis+sentinel://u:sesame@a/m?sentinel_password=sesame".parse().unwrap();
    assert!(!format!("{target} {target:?}").contains("sesame"), "{target} {target:?}");
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(url in ".{0,80}", rest in "[a-z0-9:@/?&=%.,#\\[\\]+-]{0,60}") {
        let _ = url.parse::<Target>();
        let _ = format!("redis+sentinel://{rest}").parse::<Target>();
        let _ = format!("redis://{rest}").parse::<Target>();
    }

    #[test]
    fn a_password_survives_its_escapes(user in "[^\0]{1,20}", password in ".{0,20}") {
        let escape = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let target: Target = format!("redis://{}:{}@h", escape(&user), escape(&password)).parse().unwrap();
        prop_assert_eq!(target.login.user.as_deref(), Some(user.as_str()));
        prop_assert_eq!(target.login.password.as_ref().map(Secret::reveal), Some(password.as_str()));
    }
}

#[test]
fn passwords_are_noticed() {
    for (url, expected) in [
        ("redis://h", false),
        ("redis://user:@h", false),
        ("redis://:p@h:1/2", true),
        ("rediss+cluster://u:p@h:1,i:2", true),
        ("redis+sentinel://h/name?sentinel_password=p", true),
    ] {
        assert_eq!(url.parse::<Target>().unwrap().has_password(), expected, "{url}");
    }
}

#[test]
fn only_a_cluster_has_slots() {
    for (url, expected) in [("redis://h", false), ("redis+sentinel://h/name", false), ("redis+cluster://h", true)] {
        assert_eq!(url.parse::<Target>().unwrap().has_slots(), expected, "{url}");
    }
}
