//! The dashboard's HTTP: who may ask, the headers of every answer, and the way to pages, changes and live updates.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use actix_http::HttpService;
use actix_service::{IntoServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::body::{BodyStream, to_bytes_limited};
use actix_web::dev::{AppConfig, Server as Workers, ServerHandle, ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap, HeaderName};
use actix_web::http::{Method, StatusCode};
use actix_web::{App as Web, HttpMessage, HttpResponse};
use bytes::Bytes;
use tokio::time::timeout;

use crate::exit::{Exit, Failure};

use super::act;
use super::app::App;
use super::assets;
use super::live;
use super::login::{Entered, Form};
use super::pages::{self, answer as html, failed, see};
use super::request::Request;
use super::view::bare;

/// Far more than one person's browsers open.
const CONNECTIONS: usize = 32;

/// How long a connection may be idle, a head may take, and a form's body.
const WAIT: Duration = Duration::from_secs(5);

/// A form has a few texts and at most 200 job ids.
const FORM_BYTES: usize = 64 * 1024;

/// No other origin, no inline script or style; the script makes HTML through one policy.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types hl";

const HEADERS: &[(&str, &str)] = &[
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
];

const NO_STORE: &str = "no-store";

/// Serves until the handle stops it. To be called inside a tokio runtime.
pub(super) fn serve(listener: TcpListener, app: Arc<App>) -> io::Result<ServerHandle> {
    let server = Workers::build()
        .workers(1)
        .disable_signals()
        .max_concurrent_connections(CONNECTIONS)
        .listen("dashboard", listener, move || {
            let app = Arc::clone(&app);
            let web = Web::new().default_service(fn_service(move |request| {
                let answered = answer(Arc::clone(&app), request);
                async { Ok::<_, actix_web::Error>(answered.await) }
            }));
            let web = web.into_factory().map_err(|error| error.error_response());
            HttpService::build()
                .keep_alive(WAIT)
                .client_request_timeout(WAIT)
                // A browser that closes its end has left, and its stream ends.
                .h1_allow_half_closed(false)
                .h1(map_config(web, |()| AppConfig::default()))
                .tcp()
        })?
        .run();
    let handle = server.handle();
    tokio::spawn(server);
    Ok(handle)
}

async fn answer(app: Arc<App>, mut request: ServiceRequest) -> ServiceResponse {
    let answered = route(&app, &mut request).await;
    let mut response = answered.unwrap_or_else(|failure| failed(&failure));
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .insert(HeaderName::from_static(name), header::HeaderValue::from_static(value));
    }
    if !response.headers().contains_key(header::CACHE_CONTROL) {
        let value = header::HeaderValue::from_static(NO_STORE);
        response.headers_mut().insert(header::CACHE_CONTROL, value);
    }
    request.into_response(response)
}

async fn route(app: &Arc<App>, request: &mut ServiceRequest) -> Result<HttpResponse, Failure> {
    let headers = request.headers();
    // Another name for this machine is another site's (DNS rebinding).
    let host = one(headers, &header::HOST).unwrap_or_default().to_owned();
    if !app.login.hosts.contains(&host) {
        return Ok(plain(StatusCode::MISDIRECTED_REQUEST, "not the name of this dashboard"));
    }
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_get && request.method() != Method::POST {
        return Ok(plain(StatusCode::METHOD_NOT_ALLOWED, "GET or POST"));
    }
    if is_get && let Some(asset) = assets::find(&target) {
        return Ok(HttpResponse::Ok()
            .insert_header((header::CACHE_CONTROL, "public, max-age=31536000, immutable"))
            .content_type(asset.content_type)
            .body(asset.text));
    }
    let cookie = session(headers, &app.login.cookie);
    if is_get && request.path() == "/in" {
        return enter(app, headers, &Request::parse(&target, b""));
    }
    let Some(cookie) = cookie.filter(|cookie| app.login.knows(cookie)) else {
        return Ok(html(StatusCode::FORBIDDEN, bare("Not logged in", NOT_IN, None)));
    };
    if is_get && is_embedded(request.headers()) {
        return Ok(plain(StatusCode::FORBIDDEN, "another site may link here, and embed nothing"));
    }
    app.asked();
    if is_get {
        let theme = session(request.headers(), "hooklatch_theme");
        let theme = ["light", "dark"].into_iter().find(|known| theme.as_deref() == Some(*known));
        let asked = Request { theme, ..Request::parse(&target, b"") };
        return match asked.path.first().map(String::as_str) {
            Some("live") => live::stream(app, &cookie, asked.get("of").unwrap_or("/")),
            Some("raw") => pages::event::raw(app, &asked).await,
            _ => Ok(pages::page(app, &cookie, &asked).await),
        };
    }
    if !is_own(headers, &host) {
        return Ok(plain(
            StatusCode::FORBIDDEN,
            "a change is asked for by this dashboard's own pages only",
        ));
    }
    let body = read(request).await?;
    submit(app, &cookie, &Request::parse(&target, &body)).await
}

const NOT_IN: &str = "Open the link that hooklatch ui has printed; it works once. Press Enter there for another one.";

fn enter(app: &App, headers: &HeaderMap, asked: &Request) -> Result<HttpResponse, Failure> {
    // A prefetch would use the link up.
    let fetched_ahead = ["sec-purpose", "purpose"].iter().any(|name| {
        headers.get(*name).is_some_and(|value| value.as_bytes().starts_with(b"prefetch"))
    });
    if fetched_ahead {
        return Ok(plain(StatusCode::SERVICE_UNAVAILABLE, "not ahead of time"));
    }
    Ok(match app.login.enter(asked.get("t").unwrap_or_default())? {
        Entered::In(session) => {
            let cookie = &app.login.cookie;
            let cookie = format!("{cookie}={session}; Path=/; HttpOnly; SameSite=Strict");
            see("/").insert_header((header::SET_COOKIE, cookie)).finish()
        }
        Entered::Refused => {
            html(StatusCode::FORBIDDEN, bare("This link does not work any more", NOT_IN, None))
        }
        Entered::Later => {
            plain(StatusCode::TOO_MANY_REQUESTS, "ten wrong links came; wait a minute")
        }
    })
}

async fn submit(app: &Arc<App>, cookie: &str, asked: &Request) -> Result<HttpResponse, Failure> {
    let form = asked.get("form").unwrap_or_default();
    let to = match app.login.submit(cookie, form) {
        Form::First => {
            let to = act::act(app, asked).await?;
            app.login.led(cookie, form, &to);
            to
        }
        Form::Again(Some(to)) => to,
        Form::Again(None) => {
            return Ok(plain(
                StatusCode::CONFLICT,
                "this was asked for already, and was refused or still runs",
            ));
        }
        Form::Unknown => {
            return Ok(plain(
                StatusCode::FORBIDDEN,
                "this form is not known any more; open its page again",
            ));
        }
    };
    Ok(see(&to).finish())
}

/// Whether a page of another origin asks for something other than to be left for this dashboard (Fetch Metadata).
fn is_embedded(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|given| given == value);
    let from_elsewhere = is("sec-fetch-site", "cross-site") || is("sec-fetch-site", "same-site");
    from_elsewhere && !(is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document"))
}

/// Whether a page of this dashboard sent the request. Another port of this machine is not the same origin.
fn is_own(headers: &HeaderMap, host: &str) -> bool {
    match headers.get("sec-fetch-site") {
        Some(site) => site == "same-origin",
        None => one(headers, &header::ORIGIN) == Some(&format!("http://{host}")),
    }
}

async fn read(request: &mut ServiceRequest) -> Result<Bytes, Failure> {
    let body = BodyStream::new(request.take_payload());
    match timeout(WAIT, to_bytes_limited(body, FORM_BYTES)).await {
        Ok(Ok(Ok(body))) => Ok(body),
        _ => Err(Exit::Usage.failure(format!("a form has at most {FORM_BYTES} bytes"))),
    }
}

/// A header that comes once, as text.
fn one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut all = headers.get_all(name);
    all.next().filter(|_| all.next().is_none())?.to_str().ok()
}

fn session(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).filter_map(|line| line.to_str().ok());
    let mut pairs =
        lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
}

fn plain(status: StatusCode, why: &'static str) -> HttpResponse {
    HttpResponse::build(status).content_type("text/plain; charset=utf-8").body(format!("{why}\n"))
}
