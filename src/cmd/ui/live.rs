//! Live pages: the page is made again once a second, and sent where it has changed.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use actix_web::HttpResponse;
use actix_web::body::to_bytes;
use bytes::Bytes;
use futures_util::stream;
use tokio::time::sleep;

use crate::exit::{Exit, Failure};

use super::app::App;
use super::pages;
use super::request::Request;

/// Between two looks: soon enough for a person who reads along.
const LOOK: Duration = Duration::from_secs(1);

/// A line comes so often at least, so that each end notices that the other is gone.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Pages that may be followed at once.
const STREAMS: usize = 8;

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A place among the streams.
struct Place;

impl Drop for Place {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Followed {
    app: Arc<App>,
    cookie: String,
    page: Request,
    last: Option<u64>,
    said_at: Instant,
    _place: Place,
}

/// Server-sent events (HTML living standard, section 9.2), each with the whole page `of`.
pub(super) fn stream(app: &Arc<App>, cookie: &str, of: &str) -> Result<HttpResponse, Failure> {
    let page = Request::parse(of, b"");
    if page.is_change() {
        return Err(Exit::Usage.failure("a form is not followed"));
    }
    let before = OPEN.fetch_add(1, Ordering::Relaxed);
    let place = Place;
    if before >= STREAMS {
        return Err(Exit::Unavailable.failure(format!("{STREAMS} pages are followed already")));
    }
    let followed = Followed {
        app: Arc::clone(app),
        cookie: cookie.to_owned(),
        page,
        last: None,
        said_at: Instant::now(),
        _place: place,
    };
    let events = stream::unfold(followed, async |mut followed| {
        let next = followed.next().await;
        Some((Ok::<_, actix_web::Error>(next), followed))
    });
    Ok(HttpResponse::Ok().content_type("text/event-stream").streaming(Box::pin(events)))
}

impl Followed {
    async fn next(&mut self) -> Bytes {
        loop {
            if self.last.is_some() {
                sleep(LOOK).await;
            }
            if !self.app.login.knows(&self.cookie) {
                return "event: gone\ndata: this session has ended\n\n".into();
            }
            self.app.asked();
            let answer = pages::page(&self.app, &self.cookie, &self.page).await;
            let is_good = answer.status().is_success();
            let html = to_bytes(answer.into_body()).await.unwrap_or_default();
            let mut hasher = DefaultHasher::new();
            html.hash(&mut hasher);
            let seen = hasher.finish();
            if self.last != Some(seen) {
                self.last = Some(seen);
                self.said_at = Instant::now();
                return event(if is_good { "page" } else { "gone" }, &html);
            }
            if self.said_at.elapsed() >= HEARTBEAT {
                self.said_at = Instant::now();
                return ":\n\n".into();
            }
        }
    }
}

fn event(name: &str, html: &[u8]) -> Bytes {
    let html = String::from_utf8_lossy(html);
    // Each of the two ends a line.
    let lines: String = html.split(['\n', '\r']).map(|line| format!("data: {line}\n")).collect();
    format!("event: {name}\n{lines}\n").into()
}
