//! What is wrong is told: the field, its value and what would do. Nothing of it ends the server.

use std::time::Duration;

use tidegate_server::RequestMemory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bench::{Bench, body, read_all, status, wrong};

#[tokio::test]
async fn checks_that_cannot_be_read() {
    let bench = Bench::new();
    let deep = "[".repeat(100_000);
    let many = format!(r#"{{{}}}"#, (0..200).map(|n| format!(r#""f{n}":1"#)).collect::<Vec<_>>().join(","));
    let long_key = format!(r#"{{"key":"{}","limit":"1/s"}}"#, "k".repeat(5000));
    let long_name = format!(r#"{{"{}":1}}"#, "n".repeat(5000));
    let list = format!("[{}]", vec![r#"{"key":"a","limit":"1/s"}"#; 17].join(","));
    let descriptors = format!(r#"{{"domain":"api","descriptors":[{}]}}"#, vec!["{}"; 129].join(","));
    let entries = (0..65).map(|n| format!(r#""e{n}":"""#)).collect::<Vec<_>>().join(",");
    let entries = format!(r#"{{"domain":"api","descriptors":[{{{entries}}}]}}"#);
    let cases = [
        "",
        "{",
        "nonsense",
        "null",
        "42",
        "{}",
        "[]",
        r#"{"key":"a"}"#,
        r#"{"limit":"1/s"}"#,
        r#"{"key":42,"limit":"1/s"}"#,
        r#"{"key":"","limit":"1/s"}"#,
        r#"{"key":"a","limit":42}"#,
        r#"{"key":"a","limit":null}"#,
        r#"{"key":"a","limit":"5"}"#,
        r#"{"key":"a","limit":"0/s"}"#,
        r#"{"key":"a","limit":"99999999999/s"}"#,
        r#"{"key":"a","limit":{"rate":"1/s","burst":-1}}"#,
        r#"{"key":"a","limit":{"rate":"1/s","burst":1.5}}"#,
        r#"{"key":"a","limit":{"rate":"1/s","burst":99999999999999999999}}"#,
        r#"{"key":"a","limit":{"rate":true}}"#,
        r#"{"key":"a","limit":{"algorithm":"magic","rate":"1/s"}}"#,
        r#"{"key":"a","limit":{"algorithm":"fixed_window","rate":"1/s","stagger":1}}"#,
        r#"{"key":"a","limit":{"rate":"1/s","brust":5}}"#,
        r#"{"key":"a","limit":"1/s","cost":-1}"#,
        r#"{"key":"a","limit":"1/s","cost":"1"}"#,
        r#"{"key":"a","limit":"1/s","cost":9007199254740993}"#,
        r#"{"key":"a","limit":"1/s","cost":18446744073709551616}"#,
        r#"{"key":"a","limit":"1/s","key":"b"}"#,
        r#"{"key":"a","limit":"1/s","extra":1}"#,
        r#"{"key":"a","limit":"1/s"} x"#,
        r#"{"key":"a","domain":"api"}"#,
        r#"{"key":"\ud800","limit":"1/s"}"#,
        r#"{"domain":"api"}"#,
        r#"{"domain":7,"descriptors":[{}]}"#,
        r#"{"domain":"nowhere","descriptors":[{"a":"b"}]}"#,
        r#"{"domain":"api","descriptors":[]}"#,
        r#"{"domain":"api","descriptors":{}}"#,
        r#"{"domain":"api","descriptors":[7]}"#,
        r#"{"domain":"api","descriptors":[{"user":42}]}"#,
        r#"{"domain":"api","descriptors":[[{"a":"b","c":"d"}]]}"#,
        r#"{"domain":"api","descriptors":[[{}]]}"#,
        r#"{"domain":"api","descriptors":[{"entries":[{"user":"42"}]}]}"#,
        r#"{"domain":"api","descriptors":[{"entries":[],"limit":{}}]}"#,
        r#"{"domain":"api","descriptors":[{"entries":{}}]}"#,
        r#"{"domain":"api","descriptors":[{}],"request":{"address":"here"}}"#,
        r#"{"domain":"api","descriptors":[{}],"request":{"verb":"GET"}}"#,
        r#"{"domain":"api","descriptors":[{}],"request":{"headers":{"a":1}}}"#,
        r#"[{"domain":"api","descriptors":[{}]}]"#,
        r#"[{"key":"a","limit":"1/s"},{"key":"a","limit":"2/s"}]"#,
        r#"{"key":"a","limit":"1/s","wait":"1s"}"#,
        r#"{"key":"a","limit":{"algorithm":"leaky_bucket","rate":"1/s","capacity":2},"wait":"soon"}"#,
        r#"{"key":"a","limit":{"algorithm":"leaky_bucket","rate":"1/s","capacity":2},"wait":"2d"}"#,
        r#"{"key":"a","limit":{"algorithm":"leaky_bucket","rate":"1/s","capacity":2},"wait":1}"#,
        r#"[{"key":"a","limit":{"algorithm":"leaky_bucket","rate":"1/s","capacity":2},"wait":"1s"}]"#,
        r#"{"domain":"api","descriptors":[{"user":"a"}],"wait":"1s"}"#,
        &deep,
        &many,
        &long_key,
        &long_name,
        &list,
        &descriptors,
        &entries,
    ];
    let mut table = String::new();
    for case in cases {
        let answer = bench.post("/v1/check", case).await;
        let shown: String = case.chars().take(70).collect();
        table += &format!("{shown}\n  {}\n", wrong(&answer));
    }
    insta::assert_snapshot!(table);
    let not_utf8 =
        b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 3\r\n\r\n{\xff}";
    assert_eq!(wrong(&bench.raw(not_utf8).await), "400 body: not UTF-8 after byte 1; write JSON in UTF-8");
    assert_eq!(status(&bench.get("/healthz").await), 200, "it lives");
}

#[tokio::test]
async fn queries_that_cannot_be_read() {
    let bench = Bench::new();
    let many = (0..100).map(|n| format!("p{n}=1")).collect::<Vec<_>>().join("&");
    let mut table = String::new();
    for query in [
        "",
        "key=a",
        "rate=1/s",
        "key=&rate=1/s",
        "key=a&key=b&rate=1/s",
        "key=a&rate=1/s&colour=red",
        "key=a&rate=fast",
        "key=a&rate=1/s&burst=0",
        "key=a&rate=1/s&burst=x",
        "key=a&rate=1/s&cost=-1",
        "key=a&rate=1/s&cost=99999999999999999999",
        "key=a&rate=1/s&algorithm=magic",
        "domain=api&user=42",
        "key=user:42&domain=api",
        "key=user:42&rate=1/s&domain=api",
        "descriptors=user",
        "key=%zz&rate=1/s",
        "key=%FF&rate=1/s",
        &many,
    ] {
        let answer = bench.get(&format!("/v1/check?{query}")).await;
        let shown: String = query.chars().take(70).collect();
        table += &format!("{shown}\n  {}\n", wrong(&answer));
    }
    insta::assert_snapshot!(table);
}

#[tokio::test]
async fn other_bodies_that_cannot_be_read() {
    let bench = Bench::new();
    let asked = r#""domain":"api","descriptors":[{"user":"42"}]"#;
    let mut table = String::new();
    for (path, case) in [
        ("/v1/report", format!("{{{asked}}}")),
        ("/v1/report", format!(r#"{{{asked},"response":{{"status":99}}}}"#)),
        ("/v1/report", format!(r#"{{{asked},"response":{{"status":"ok"}}}}"#)),
        ("/v1/report", format!(r#"{{{asked},"response":{{"bytes":-1}}}}"#)),
        ("/v1/report", r#"{"key":"a","limit":"1/s","response":{}}"#.to_owned()),
        ("/v1/report", r#"{"domain":"nowhere","descriptors":[{}],"response":{}}"#.to_owned()),
        ("/v1/inspect", r#"{"domain":"nowhere","descriptors":[{}]}"#.to_owned()),
        ("/v1/inspect", format!(r#"{{{asked},"units":1}}"#)),
        ("/v1/grant", format!("{{{asked}}}")),
        ("/v1/grant", format!(r#"{{{asked},"units":0}}"#)),
        ("/v1/grant", format!(r#"{{{asked},"units":"many"}}"#)),
        ("/v1/block", format!("{{{asked}}}")),
        ("/v1/block", format!(r#"{{{asked},"duration":0}}"#)),
        ("/v1/block", format!(r#"{{{asked},"duration":"soon"}}"#)),
        ("/v1/block", format!(r#"{{{asked},"duration":9999999999999}}"#)),
        ("/v1/block", format!(r#"{{{asked},"for":"10m"}}"#)),
        ("/v1/block", format!(r#"{{{asked},"for":"10m","duration":"10m"}}"#)),
        ("/v1/block", r#"{"key":"a","limit":"1/s","duration":"10m"}"#.to_owned()),
        ("/v1/unblock", r#"{"key":"a","limit":"1/s"}"#.to_owned()),
        ("/v1/unblock", format!(r#"{{{asked},"duration":"10m"}}"#)),
        ("/json", "{".to_owned()),
        ("/json", "{}".to_owned()),
        ("/json", r#"{"domain":"api"}"#.to_owned()),
        ("/json", r#"{"domain":"api","descriptors":[{"entries":[{"key":"user","value":42}]}]}"#.to_owned()),
        ("/json", r#"{"domain":"api","descriptors":[{"entries":[],"limit":{"unit":"EON"}}]}"#.to_owned()),
        ("/json", r#"{"domain":"api","descriptors":[{"entries":[],"limit":{"requestsPerUnit":1}}]}"#.to_owned()),
        ("/json", r#"{"domain":"api","descriptors":[{}],"hitsAddend":-1}"#.to_owned()),
        ("/json", r#"{"domain":"api","descriptors":[{}],"hitsAddend":1,"hits_addend":5}"#.to_owned()),
        ("/json", r#"{"domain":"api","descriptors":[{}],"hits_addend":4294967296}"#.to_owned()),
    ] {
        table += &format!("{path} {case}\n  {}\n", wrong(&bench.post(path, &case).await));
    }
    insta::assert_snapshot!(table);
}

#[tokio::test]
async fn paths_and_methods() {
    let bench = Bench::new();
    assert_eq!(wrong(&bench.get("/v1/chekc").await), "404 path: /v1/chekc not found; GET / lists all paths");
    let answer = bench.ask("DELETE /v1/check", &[], "").await;
    assert_eq!(wrong(&answer), "405 method: not allowed for this path; use GET, POST");
    assert!(answer.contains("\nallow: GET, POST\n"), "{answer}");
    assert_eq!(
        wrong(&bench.get("/v1/rules/api/per-user/mode").await),
        "405 method: not allowed for this path; use PUT"
    );
    assert_eq!(status(&bench.ask("BREW /v1/check", &[], "").await), 405);
    assert_eq!(status(&bench.get("//v1/check").await), 404);
}

#[tokio::test]
async fn bodies_that_are_too_large() {
    let bench = Bench::new();
    let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\n";
    let promised = bench.raw(format!("{head}content-length: 9999999999\r\n\r\n")).await;
    assert_eq!(wrong(&promised), "413 body: too large; send at most 262144 bytes");
    let mut chunked = format!("{head}transfer-encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..9 {
        chunked.extend_from_slice(b"8000\r\n");
        chunked.extend_from_slice(&[b' '; 0x8000]);
        chunked.extend_from_slice(b"\r\n");
    }
    assert_eq!(status(&bench.raw(chunked).await), 413);
    let fits = format!("{}{}", r#"{"key":"a","limit":"9/s"}"#, " ".repeat(200_000));
    assert_eq!(status(&bench.post("/v1/check", &fits).await), 200);
}

#[tokio::test]
async fn heads_that_are_too_large_or_broken() {
    let bench = Bench::new();
    let flood: String = (0..200).map(|n| format!("x-{n}: y\r\n")).collect();
    assert_eq!(status(&bench.raw(format!("GET / HTTP/1.1\r\n{flood}\r\n")).await), 431);
    let long = "y".repeat(20_000);
    assert_eq!(status(&bench.raw(format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n")).await), 431);
    let uri = "y".repeat(70_000);
    assert!([414, 431].contains(&status(&bench.raw(format!("GET /{uri} HTTP/1.1\r\n\r\n")).await)));
    for broken in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: a\0b\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let answer = bench.raw(broken).await;
        assert!(answer.is_empty() || status(&answer) == 400, "{broken:?}: {answer}");
    }
    assert_eq!(status(&bench.get("/healthz").await), 200, "it lives");
}

#[tokio::test]
async fn several_requests_on_one_connection() {
    let bench = Bench::new();
    let body_text = r#"{"key":"a","limit":"2/minute"}"#;
    let one =
        format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body_text}", body_text.len());
    let bad = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{]";
    let last = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answers = bench.raw(format!("{one}{bad}{one}{one}{last}")).await;
    let statuses: Vec<u16> = answers.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].parse().unwrap()).collect();
    assert_eq!(statuses, [200, 400, 200, 429, 200]);
}

#[tokio::test(start_paused = true)]
async fn silent_connections_are_closed() {
    let bench = Bench::new();
    for start in ["", "GET / HT", "GET / HTTP/1.1\r\nhost: x\r\n"] {
        let mut stream = bench.connect().await;
        stream.write_all(start.as_bytes()).await.unwrap();
        let started = tokio::time::Instant::now();
        assert_eq!(read_all(&mut stream).await, "", "{start:?}");
        assert!(started.elapsed().as_secs() <= 15, "{start:?}");
    }
    let mut stream = bench.connect().await;
    stream
        .write_all(b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20\r\n\r\n{\"key\":")
        .await
        .unwrap();
    assert_eq!(wrong(&read_all(&mut stream).await), "408 body: not received within 10 s; send it without pauses");
}

#[tokio::test(start_paused = true)]
async fn half_a_request_after_others_is_not_waited_for_any_longer() {
    let bench = Bench::new();
    let mut stream = bench.connect().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let answered = stream.read(&mut [0; 1024]).await.unwrap();
    assert!(answered > 0);
    stream.write_all(b"GET / HT").await.unwrap();
    let started = tokio::time::Instant::now();
    assert_eq!(read_all(&mut stream).await, "");
    assert!((10..=15).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

/// The beginning of a request that came together with the one before is no pause between requests.
#[tokio::test(start_paused = true)]
async fn half_a_request_in_the_same_packet_is_not_waited_for_any_longer() {
    let bench = Bench::new();
    let check = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\n";
    let whole = format!("{check}content-length: 26\r\n\r\n{{\"key\":\"a\",\"limit\":\"99/s\"}}");
    let chunked =
        format!("{check}transfer-encoding: chunked\r\n\r\n1a\r\n{{\"key\":\"a\",\"limit\":\"99/s\"}}\r\n0\r\n\r\n");
    for first in ["GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", &whole, &chunked] {
        for half in ["G", "GET / HT", "GET / HTTP/1.1\r\nx: ", "GET / HTTP/1.1\r\nhost: x\r\n", "\r\nGET"] {
            let mut stream = bench.connect().await;
            let started = tokio::time::Instant::now();
            stream.write_all(format!("{first}{half}").as_bytes()).await.unwrap();
            assert_eq!(status(&read_all(&mut stream).await), 200, "{first:?}");
            assert!((10..=15).contains(&started.elapsed().as_secs()), "{half:?}: {:?}", started.elapsed());
        }
    }
}

/// That it was looked at meanwhile makes no difference to a client.
#[tokio::test(start_paused = true)]
async fn a_connection_goes_on_after_a_pause() {
    let bench = Bench::new();
    let mut stream = bench.connect().await;
    let request = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    // Some old clients send an empty line behind a request.
    for (pause, sent) in
        [(0, format!("{request}\r\n")), (30, request.to_owned()), (80, request.repeat(2)), (30, request.to_owned())]
    {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answers = String::new();
        while answers.matches("alive\n").count() < sent.matches("GET").count() {
            let mut bytes = [0; 1024];
            let count = stream.read(&mut bytes).await.unwrap();
            assert!(count > 0, "closed after {pause} s");
            answers += std::str::from_utf8(&bytes[..count]).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_between_requests_stays_open_for_a_while() {
    let bench = Bench::new();
    let mut stream = bench.connect().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let started = tokio::time::Instant::now();
    assert_eq!(status(&read_all(&mut stream).await), 200);
    assert!((60..100).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_answer_never_repeats_much_of_the_request() {
    let bench = Bench::new();
    let answer = bench.post("/v1/check", &format!(r#"{{"key":"a","limit":"{}"}}"#, "9".repeat(100_000))).await;
    assert_eq!(status(&answer), 400);
    assert!(answer.len() < 1000 && body(&answer)["detail"].is_string(), "{}", answer.len());
}

#[tokio::test]
async fn half_bodies_have_a_budget() {
    let memory = RequestMemory { listener_bytes: 400 << 10, connection_bytes: 190 << 10 };
    let bench = Bench::behind(|listener| listener.with_request_memory(memory));
    let half = |bytes: usize| {
        format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: 200000\r\n\r\n{}", "x".repeat(bytes))
    };
    let answer = bench.raw(half(199_000)).await;
    assert_eq!(status(&answer), 503, "{answer}");
    assert!(answer.contains("unfinished requests take too much memory"), "{answer}");
    // The largest of all gives way.
    let mut large = bench.connect().await;
    large.write_all(half(90_000).as_bytes()).await.unwrap();
    let mut others = Vec::new();
    for _ in 0..9 {
        let mut other = bench.connect().await;
        other.write_all(half(40_000).as_bytes()).await.unwrap();
        others.push(other);
    }
    assert_eq!(status(&read_all(&mut large).await), 503);
    assert_eq!(status(&bench.get("/v1/check?key=a&rate=1/s").await), 200);
}
