//! The dashboard's HTTP: who may ask, the headers of every answer, and the way to pages, changes and live updates.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use actix_http::HttpService;
use actix_http::error::DispatchError;
use actix_service::{
    IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, apply_fn_factory, fn_service,
    map_config,
};
use actix_web::dev::{AppConfig, Server as Workers, ServerHandle};
use actix_web::http::header::{self, HeaderMap};
use actix_web::http::{KeepAlive, Method, StatusCode};
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Payload};
use actix_web::{App as Web, HttpRequest, HttpResponse};
use bytes::Bytes;
use maud::html;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;

use crate::cmd::runtime::block_on;
use crate::cmd::signals::Signals;
use crate::config::Access;
use crate::exit::{Exit, Failure};
use crate::http::{Bounds, Connection, Door, bound_answers};
use crate::limits::{HEAD_BYTES, OPERATOR_CONNECTIONS};
use crate::panics::contained;

use super::app::{App, Dashboard};
use super::login::{Entered, Form, Login, Way, cookies, only};
use super::pages::{self, answer as page, failed, see};
use super::request::Request;
use super::view::{WITHHELD, bare};
use super::{act, assets, live};

/// Requests that are answered at once: far more than one person's browsers ask.
const REQUESTS: usize = 32;

/// How long a head may take, and a form's body.
const WAIT: Duration = Duration::from_secs(5);

/// How long a client may take nothing of an answer.
const TAKES: Duration = Duration::from_secs(10);

/// How long an answered client may take to close its end.
const DISCONNECT: Duration = Duration::from_secs(1);

/// A browser that closes its end has left, and its stream ends.
const BOUNDS: Bounds = Bounds {
    head_bytes: HEAD_BYTES,
    head_time: WAIT,
    ends_with_client: true,
    are_deliveries: false,
};

/// A form has a few texts and at most 200 job ids.
const FORM_BYTES: usize = 64 * 1024;

/// No other origin, no inline script or style; the script makes HTML through one policy.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types hl";

const PERMISSIONS: &str = "camera=(), geolocation=(), microphone=()";

const HEADERS: &[(&str, &str)] = &[
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", PERMISSIONS),
    // Unless the answer says otherwise.
    ("cache-control", "no-store"),
];

type Answer = Result<HttpResponse, Failure>;

/// Where the dashboard listens.
pub(super) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Serves until a signal, or until `ended` returns.
pub(super) fn run(
    socket: Socket,
    dashboard: &Arc<Dashboard>,
    ended: impl Future<Output = Result<(), Failure>>,
) -> Result<Exit, Failure> {
    block_on(async {
        let mut signals = Signals::register()?;
        let server = serve(socket, Arc::clone(dashboard));
        let server = server.map_err(Failure::io("serve the dashboard"))?;
        tokio::select! {
            _ = signals.next() => {}
            ended = ended => ended?,
        }
        server.stop(false).await;
        Ok(Exit::Ok)
    })?
}

/// Serves until the handle stops it.
fn serve(socket: Socket, dashboard: Arc<Dashboard>) -> io::Result<ServerHandle> {
    let door = Door::new(OPERATOR_CONNECTIONS, REQUESTS, BOUNDS);
    let server =
        Workers::build().workers(1).disable_signals().max_concurrent_connections(door.accepted());
    let server = match socket {
        Socket::Tcp(socket) => server.listen("dashboard", socket, move || {
            let http = http(Arc::clone(&dashboard), door.clone());
            let door = door.clone();
            let connected = fn_service(move |stream: TcpStream| {
                // A client that takes nothing would keep its connection for good.
                bound_answers(&stream, TAKES);
                let admitted = door.clone().admit(stream);
                async { Ok::<_, DispatchError>((admitted.await?, None)) }
            });
            apply_fn_factory(connected.and_then(http), |stream: TcpStream, served| {
                contained(served.call(stream))
            })
        })?,
        Socket::Unix(socket) => server.listen_uds("dashboard", socket, move || {
            let http = http(Arc::clone(&dashboard), door.clone());
            let door = door.clone();
            let connected = fn_service(move |stream: UnixStream| {
                let mut stream = TimeoutStream::new(stream);
                stream.set_write_timeout(Some(TAKES));
                let admitted = door.clone().admit(Box::pin(stream));
                async { Ok::<_, DispatchError>((admitted.await?, None)) }
            });
            apply_fn_factory(connected.and_then(http), |stream: UnixStream, served| {
                contained(served.call(stream))
            })
        })?,
    };
    let running = server.run();
    let handle = running.handle();
    tokio::spawn(running);
    Ok(handle)
}

/// The requests of connections that `door` has admitted.
fn http<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    dashboard: Arc<Dashboard>,
    door: Door,
) -> impl ServiceFactory<
    (Connection<S>, Option<SocketAddr>),
    Config = (),
    Response = (),
    Error = DispatchError,
    InitError = (),
> {
    // Strangers' forms take no place of a session's.
    let (of_sessions, known) = (door.beside(), Arc::clone(&dashboard));
    let headers = DefaultHeaders::new();
    let headers = HEADERS.iter().fold(headers, |all, one| all.add(*one));
    let service = move |request, body| answer(Arc::clone(&dashboard), request, body);
    let app = Web::new().wrap(headers).default_service(web::to(service));
    let app = app.into_factory().map_err(|error| error.error_response());
    let app = map_config::<_, _, actix_http::Request, _, _>(app, |()| AppConfig::default());
    let app = apply_fn_factory(app, move |request: actix_http::Request, app| {
        let has_session = request.method() == Method::POST
            && matches!(known.login.visitor(&request.head().headers), Ok(Some(_)));
        let door = if has_session { &of_sessions } else { &door };
        let (turn, request) = door.begin(request);
        turn.end(request.map(|request| app.call(request)))
    });
    HttpService::build()
        // A client cannot keep a place that others wait for by one request after the other.
        .keep_alive(KeepAlive::Disabled)
        .client_request_timeout(WAIT)
        .client_disconnect_timeout(DISCONNECT)
        .h1_allow_half_closed(false)
        .on_connect_ext(|connection: &Connection<S>, data| {
            data.insert(connection.gate());
        })
        .h1(app)
}

async fn answer(dashboard: Arc<Dashboard>, request: HttpRequest, body: Payload) -> HttpResponse {
    let answered = route(&dashboard, &request, body).await;
    answered.unwrap_or_else(|failure| failed(&failure))
}

async fn route(dashboard: &Arc<Dashboard>, request: &HttpRequest, body: Payload) -> Answer {
    let (headers, login) = (request.headers(), &dashboard.login);
    // Another name for this machine is another site's (DNS rebinding).
    let Some(origin) = login.origin(only(headers, "host")?.unwrap_or_default()) else {
        return plain(421, "not the name of this dashboard");
    };
    let target = request.uri().path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return plain(411, "a form says how long it is");
    }
    let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_get && request.method() != Method::POST {
        return plain(405, "GET or POST");
    }
    if is_get && let Some(asset) = assets::find(target) {
        return Ok(HttpResponse::Ok()
            .insert_header((header::CACHE_CONTROL, "public, max-age=31536000, immutable"))
            .content_type(asset.mime)
            .body(asset.text));
    }
    if !is_get && !is_own(headers, origin)? {
        return plain(403, "only this dashboard's own pages ask for changes");
    }
    let embeds = is_get && is_embedded(headers);
    let mut asked = Request::parse(target, b"");
    let theme = cookies(headers, "hooklatch_theme").find(|theme| ["light", "dark"].contains(theme));
    asked.theme = theme.map(str::to_owned);
    let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
    match path[..] {
        // A prefetch would use the link up.
        ["in"] if is_get && is_prefetch(headers) => return plain(503, "not ahead of time"),
        // Ten pictures of any site would be ten wrong links.
        ["in"] if embeds => return plain(403, "a link is opened, not embedded"),
        ["in"] if is_get && login.is_linked() => {
            return enter(login, asked.get("t"), "This link does not work now", "/");
        }
        ["login"] if !is_get && matches!(login.way, Way::Configured(Access::Tokens { .. })) => {
            // A token in the address does not count.
            let typed = Request::parse("/login", &read(body).await?);
            let to = typed.get("to").unwrap_or("/");
            return enter(login, typed.get("token"), "This token is wrong", to);
        }
        _ => {}
    }
    let Some((user, key)) = login.visitor(headers)? else {
        return not_in(login, "Not logged in", if is_get { target } else { "/" });
    };
    if embeds {
        return plain(403, "another site may link here, and embed nothing");
    }
    dashboard.asked();
    let app = App::new(dashboard, user);
    match path[..] {
        ["live"] if is_get => live::stream(&app, &key, asked.get("of").unwrap_or("/")),
        ["raw"] if is_get && !app.may_see_payloads() => plain(403, WITHHELD),
        ["raw"] if is_get => pages::event::raw(&app, &asked).await,
        _ if is_get => Ok(pages::page(&app, &key, &asked).await),
        ["logout"] => {
            login.leave(&key);
            Ok(see("/").finish())
        }
        _ => submit(app, key, Request::parse(target, &read(body).await?)).await,
    }
}

/// The answer to those without a session. `to` is the page that they asked for.
fn not_in(login: &Login, title: &str, to: &str) -> Answer {
    let to = own_path(to);
    let text = match login.way {
        Way::Link(_) => html! {
            "Open the link that hooklatch ui printed. It works once; Enter there prints another."
        },
        Way::Configured(Access::Tokens { .. }) => html! {
            form.card.panel method="post" action="/login" {
                div.pad {
                    input type="hidden" name="to" value=(to);
                    label.field { "Token" input type="password" name="token" autocomplete="current-password" required autofocus; }
                }
                footer { button.btn.primary { "Log in" } }
            }
            // A link from another site comes without the cookie.
            "Logged in already? " a.link href=(to) { "Open the page" }
        },
        Way::Configured(Access::Proxy(_)) => html! {
            "This dashboard is reached through its proxy, which names the user."
        },
    };
    Ok(page(StatusCode::FORBIDDEN, bare(title, text, None)))
}

/// The path, or the overview's in place of what leads to another site.
fn own_path(to: &str) -> &str {
    let is_path = to.starts_with('/') && !to[1..].starts_with(['/', '\\']);
    let is_plain = to.bytes().all(|byte| byte.is_ascii_graphic());
    Some(to).filter(|_| is_path && is_plain).unwrap_or("/")
}

fn enter(login: &Login, given: Option<&str>, wrong: &str, to: &str) -> Answer {
    match login.enter(given.unwrap_or_default())? {
        Entered::In(cookie) => {
            let mut answer = see(own_path(to));
            Ok(answer.insert_header((header::SET_COOKIE, cookie)).finish())
        }
        Entered::Refused => not_in(login, wrong, to),
        Entered::Later => plain(429, "ten wrong links or tokens came; wait a minute"),
    }
}

async fn submit(app: Arc<App>, key: String, asked: Request) -> Answer {
    let form = asked.get("form").unwrap_or_default().to_owned();
    match app.login.submit(&key, &form) {
        Some(Form::Open) => {
            // A visitor who leaves stops nothing.
            let change = tokio::spawn(contained(async move {
                let to = act::act(&app, &asked).await?;
                app.login.led(&key, &form, &to);
                Ok::<_, Failure>(to)
            }));
            Ok(see(&change.await??).finish())
        }
        Some(Form::Led(to)) => Ok(see(&to).finish()),
        Some(Form::Submitted) => plain(409, "this was asked for already: refused, or under way"),
        None => plain(403, "this form is not known any more; open its page again"),
    }
}

fn is_prefetch(headers: &HeaderMap) -> bool {
    let names = ["sec-purpose", "purpose"];
    let mut said = names.iter().filter_map(|name| headers.get(*name));
    said.any(|text| text.as_bytes().starts_with(b"prefetch"))
}

/// Whether a page of another origin asks for something other than to be left for this dashboard (Fetch Metadata).
fn is_embedded(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|given| given == value);
    let from_elsewhere = is("sec-fetch-site", "cross-site") || is("sec-fetch-site", "same-site");
    from_elsewhere && !(is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document"))
}

/// Whether a page of this dashboard sent the request. Another port of this machine is not the same origin.
fn is_own(headers: &HeaderMap, origin: &str) -> Result<bool, Failure> {
    Ok(match only(headers, "sec-fetch-site")? {
        Some(site) => site == "same-origin",
        None => only(headers, "origin")? == Some(origin),
    })
}

async fn read(body: Payload) -> Result<Bytes, Failure> {
    match timeout(WAIT, body.to_bytes_limited(FORM_BYTES)).await {
        Ok(Ok(Ok(body))) => Ok(body),
        _ => Err(Exit::Usage.failure(format!("a form has at most {FORM_BYTES} bytes"))),
    }
}

fn plain(status: u16, why: &str) -> Answer {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN);
    let mut answer = HttpResponse::build(status);
    answer.content_type("text/plain; charset=utf-8");
    Ok(answer.body(format!("{why}\n")))
}
