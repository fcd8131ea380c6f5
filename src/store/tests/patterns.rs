use super::*;
use crate::store::pattern::Patterns;

/// A body of a usual form, in which only `name` and the number are its own.
fn body(number: u32, name: &str) -> String {
    let links: String = (0..30)
        .map(|n| format!(r#""link_{n}":"https://api.example.com/repos/{name}/{number}/part_{n}","#))
        .collect();
    format!(
        r#"{{"ref":"refs/heads/main",{links}"after":"{}"}}"#,
        number.wrapping_mul(2_654_435_761)
    )
}

async fn push(bench: &Bench, number: u32, name: &str) {
    let accepted =
        bench.accept("github", github(&format!("d{number}"), "push", &body(number, name)), &["h"]);
    assert!(matches!(accepted.await, Accepted::Created { .. }));
}

/// Waits until the type has a pattern.
async fn learned(bench: &Bench) {
    let mut changes = bench.store.changes();
    let patterns = || bench.store.inner.patterns.of(&name("github"), "push");
    while patterns().is_none() {
        // Made known right after its commit, which stirs.
        let _stirred = tokio::time::timeout(Duration::from_millis(10), changes.changed()).await;
    }
}

async fn stored(bench: &Bench) -> Vec<(Option<i64>, i64, i64)> {
    let rows = bench.store.read(|conn| {
        conn.prepare("SELECT pattern, length(headers), length(body) FROM payload ORDER BY event")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect()
    });
    rows.await.unwrap()
}

#[tokio::test]
async fn from_the_ninth_of_a_type_on_a_payload_is_stored_as_what_is_its_own() {
    let mut bench = bench();
    for number in 0..8 {
        push(&bench, number, &format!("owner{number}")).await;
    }
    learned(&bench).await;
    push(&bench, 8, "someone").await;
    let rows = stored(&bench).await;
    assert!(rows[..8].iter().all(|(pattern, headers, _)| pattern.is_none() && *headers > 0));
    let (pattern, headers, bytes) = rows[8];
    assert!(pattern.is_some() && headers == 0, "{rows:?}");
    assert!(bytes * 2 < rows[7].1 + rows[7].2, "{rows:?}");

    // Also by whoever has only the file.
    for _ in 0..2 {
        let shown = bench.store.show(None, id("d8")).await.unwrap().remove(0);
        assert_eq!(shown.body.unwrap().0, body(8, "someone").into_bytes());
        assert!(
            shown.headers.iter().any(|(name, value)| name == "X-GitHub-Delivery" && value == "d8")
        );
        bench.restart().await;
    }
    let claimed = bench.store.claim(&name("h"), 9, None).await.unwrap().jobs;
    assert_eq!(claimed.len(), 9);
    for (number, claimed) in claimed.iter().enumerate() {
        let facts = &claimed.facts;
        let owner = if number == 8 { "someone".to_owned() } else { format!("owner{number}") };
        assert_eq!(facts.body, body(number as u32, &owner).as_bytes());
        assert_eq!(facts.headers.all("content-type").count(), 1, "{number}");
    }
    push(&bench, 9, "another").await;
    assert_eq!(stored(&bench).await[9].0, pattern);
    // Another type has a pattern of its own, some day.
    bench.accept("github", github("e1", "star.created", &body(1, "someone")), &["h"]).await;
    assert_eq!(stored(&bench).await[10].0, None);
}

#[tokio::test]
async fn a_pattern_has_only_what_all_its_samples_have() {
    let bench = bench();
    for number in 0..8 {
        push(&bench, number, &format!("owner{number}")).await;
    }
    learned(&bench).await;
    let stored: Vec<u8> = bench
        .store
        .read(|conn| conn.query_row("SELECT words FROM pattern", [], |row| row.get(0)))
        .await
        .unwrap();
    let words = zstd::stream::decode_all(&*stored).unwrap();
    let words = String::from_utf8_lossy(&words);
    assert!(
        words.contains("https://api.example.com/repos//") && words.contains("part_29"),
        "{words}"
    );
    assert!(!words.contains("owner") && !words.contains("d0"), "{words}");
}

#[tokio::test]
async fn what_is_large_or_small_or_evidence_stands_by_itself() {
    let bench = bench();
    let event = |id: &str, n: u32| stripe(id, "a.b", &body(n, "x"));
    for number in 0..8 {
        bench.accept("github", event(&format!("evt_{number}"), number), &[]).await;
    }
    let of = || bench.store.inner.patterns.of(&name("github"), "a.b");
    let mut changes = bench.store.changes();
    while of().is_none() {
        let _stirred = tokio::time::timeout(Duration::from_millis(10), changes.changed()).await;
    }
    bench.accept("github", event("evt_0", 99), &[]).await;
    let kept: (i64, Vec<u8>) = bench
        .store
        .read(|conn| {
            conn.query_row("SELECT body_bytes, body FROM evidence", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
        })
        .await
        .unwrap();
    let plain = codec::decompress_now(&kept.1, kept.0 as usize).unwrap();
    assert_eq!(plain, event("evt_0", 99).body().as_ref());
    let noise = "x".repeat(300 * 1024);
    bench.accept("github", stripe("large", "a.b", &format!("\"{noise}\"")), &[]).await;
    bench.accept("github", stripe("small", "a.b", "{}"), &[]).await;
    let rows = stored(&bench).await;
    assert_eq!(rows[8].0, None, "a body that a thread of its own compresses");
    for id in ["large", "small"] {
        let shown = bench.store.show(None, self::id(id)).await.unwrap().remove(0);
        assert_eq!(shown.body.unwrap().len() as u64, shown.event.body_bytes);
    }
}

#[tokio::test]
async fn a_payload_that_is_not_as_its_event_says_is_no_payload() {
    let bench = bench();
    for number in 0..8 {
        push(&bench, number, &format!("owner{number}")).await;
    }
    learned(&bench).await;
    let pattern = bench.store.inner.patterns.of(&name("github"), "push").unwrap();
    let (headers, raw) = (b"A: b\r\n", body(3, "y"));
    let frame = pattern.compress(headers, raw.as_bytes()).unwrap();
    let (kept, got) = pattern.decompress(&frame, raw.len()).unwrap();
    assert_eq!((kept.to_wire().as_slice(), got.as_slice()), (&headers[..], raw.as_bytes()));
    assert!(pattern.decompress(&frame, raw.len() + headers.len() + 1).is_err());
    for cut in [0, 1, frame.len() / 2, frame.len() - 1] {
        assert!(pattern.decompress(&frame[..cut], raw.len()).is_err(), "{cut}");
    }
    assert!(Patterns::default().at(pattern.row).is_none());
}

#[tokio::test]
async fn copies_of_one_event_teach_nothing() {
    let bench = bench();
    let same = body(1, "owner");
    for number in 0..20 {
        bench.accept("github", github(&format!("c{number}"), "label.edited", &same), &["h"]).await;
    }
    assert!(bench.store.inner.patterns.of(&name("github"), "label.edited").is_none());
}
