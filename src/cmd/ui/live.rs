//! Live pages: a page is made again when something has changed, and sent if it differs.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::to_bytes;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::sleep;

use crate::admin::GetChanges;
use crate::exit::{Exit, Failure};

use super::app::App;
use super::pages::{self, MovesByItself};
use super::request::Request;

/// The pause between two looks: soon enough for a person who reads along.
const LOOK: Duration = Duration::from_secs(1);

/// Pages that may be followed at once: each takes one of the admin API's 32 places for callers that wait.
const STREAMS: usize = 8;

static PLACES: Semaphore = Semaphore::const_new(STREAMS);

struct Followed {
    app: Arc<App>,
    cookie: String,
    page: Request,
    /// The receiver's mark of changes.
    mark: u64,
    /// The next page may differ without a change, as the first one does.
    moves_by_itself: bool,
    last: Option<Bytes>,
    _place: SemaphorePermit<'static>,
}

/// Server-sent events (HTML living standard, section 9.2), each with the whole page `of`.
pub(super) fn stream(app: &Arc<App>, cookie: &str, of: &str) -> Result<HttpResponse, Failure> {
    let page = Request::parse(of, b"");
    if page.is_change() {
        return Err(Exit::Usage.failure("a form is not followed"));
    }
    let Ok(place) = PLACES.try_acquire() else {
        let message = format!("{STREAMS} pages are followed already");
        return Err(Exit::Unavailable.failure(message));
    };
    let followed = Followed {
        app: Arc::clone(app),
        cookie: cookie.to_owned(),
        page,
        mark: 0,
        moves_by_itself: true,
        last: None,
        _place: place,
    };
    let events = stream::unfold(followed, async |mut followed| {
        let next = followed.next().await;
        Some((Ok::<_, actix_web::Error>(next), followed))
    });
    let mut answer = HttpResponse::Ok();
    answer.content_type("text/event-stream");
    Ok(answer.streaming(Box::pin(events)))
}

impl Followed {
    async fn next(&mut self) -> Bytes {
        if self.last.is_some() {
            sleep(LOOK).await;
        }
        if !self.moves_by_itself {
            // Up to 25 s. After that, or if the receiver is away, the page is made again.
            let change = self.app.wait(GetChanges { after: self.mark }).await;
            self.mark = change.map_or(self.mark, |change| change.mark);
        }
        if !self.app.login.knows(&self.cookie) {
            self.last = Some(Bytes::new());
            return "event: gone\ndata: this session has ended\n\n".into();
        }
        self.app.asked();
        let answer = pages::page(&self.app, &self.cookie, &self.page).await;
        self.moves_by_itself = answer.extensions().contains::<MovesByItself>();
        let is_good = answer.status().is_success();
        let html = to_bytes(answer.into_body()).await.unwrap_or_default();
        if self.last.replace(html.clone()).as_ref() == Some(&html) {
            // A comment, so that each end notices if the other is gone.
            return ":\n\n".into();
        }
        event(if is_good { "page" } else { "gone" }, &html)
    }
}

fn event(name: &str, html: &[u8]) -> Bytes {
    let html = String::from_utf8_lossy(html);
    // Each of the two ends a line.
    let lines = html.split(['\n', '\r']);
    let lines: String = lines.map(|line| format!("data: {line}\n")).collect();
    format!("event: {name}\n{lines}\n").into()
}
