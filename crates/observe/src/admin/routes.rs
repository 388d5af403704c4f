//! The answer of each path of the admin port, with its headers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use base::UnixMillis;
use host::process::unix_now;
use runtime::shared::Shared;
use sessions::logins::{Logins, Origin, Pace};

use super::Connection;
use super::guard::{Access, Asked, Guard, is_health_path};
use crate::metrics::{Snapshot, openmetrics};

/// The time for all workers together to store and read back a value.
const PROBE_MAX: Duration = Duration::from_secs(1);

const PAGE: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/page.js");
const CHARTS: &str = include_str!("page/charts.js");
const STYLE: &str = include_str!("page/page.css");
/// Under the name that browsers request if a page names no icon.
const ICON: &str = include_str!("page/icon.svg");
const NOT_FOUND: &str = "not found: there are /, /stats, /metrics, /healthz and /readyz\n";

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

const WRONG_HOST: &str = "the name in Host is not this server's: \
    allowed are loopback names, the address of the connection, and --admin-hosts\n";
const NEEDS_LOGIN: &str =
    "a login is needed: of a user with a password and the right to run INFO\n";
const WRONG_LOGIN: &str = "wrong name or password\n";
const TOO_MANY_FAILED: &str =
    "too many failed logins from this address: it may try again in a few seconds\n";
const DENIED: &str = "this user may not run INFO\n";

/// The minimum delay before a wrong login is answered.
const WRONG_LOGIN_PAUSE: Duration = Duration::from_millis(500);

/// Headers of every answer: nothing is cached, framed, or loaded from elsewhere.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CACHE_CONTROL, "no-store"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Whether the keys may be shown to this request.
#[derive(Clone, Copy)]
struct ShowsKeys(bool);

struct Gate {
    guard: Guard,
    shared: Arc<Shared>,
}

/// All routes; axum answers 405 to any method but GET and HEAD.
pub fn router(shared: Arc<Shared>, address: SocketAddr) -> Router {
    let guard = Guard::new(shared.config(), address, &shared.acl().table());
    let gate = Arc::new(Gate { guard, shared: Arc::clone(&shared) });
    Router::new()
        .route("/", get(async || answer("text/html; charset=utf-8", PAGE)))
        .route("/page.js", get(async || answer("text/javascript; charset=utf-8", SCRIPT)))
        .route("/charts.js", get(async || answer("text/javascript; charset=utf-8", CHARTS)))
        .route("/page.css", get(async || answer("text/css; charset=utf-8", STYLE)))
        .route("/favicon.ico", get(async || answer("image/svg+xml", ICON)))
        .route("/healthz", get(async || answer(TEXT, "ok\n")))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .fallback(async || (StatusCode::NOT_FOUND, answer(TEXT, NOT_FOUND)))
        .with_state(shared)
        .layer(from_fn_with_state(gate, pass))
}

/// Handles every request before its route.
async fn pass(
    State(gate): State<Arc<Gate>>,
    Extension(connection): Extension<Connection>,
    mut request: Request,
    next: Next,
) -> Response {
    // Requests that arrived together are answered in turns with those of other clients.
    tokio::task::yield_now().await;
    let (logins, now) = (&gate.shared.acl().logins, unix_now());
    let access = {
        let (version, uri, headers) = (request.version(), request.uri(), request.headers());
        let may_log_in = !logins.refuses(connection.origin, now);
        let asked = Asked { version, uri, headers, may_log_in };
        gate.guard.judge(&asked, connection.local.ip(), &gate.shared.acl().table())
    };
    let is_looked_at = request.headers().contains_key(header::AUTHORIZATION)
        && !matches!(access, Access::WrongHost | Access::TooManyFailed)
        && !is_health_path(request.uri().path());
    if is_looked_at {
        tokio::time::sleep(login_wait(logins, connection.origin, access, now)).await;
    }
    let counters = &gate.shared.observations().admin;
    let refuse = |count: &AtomicU64, status, text: &'static str| {
        count.fetch_add(1, Ordering::Relaxed);
        (status, answer(TEXT, text)).into_response()
    };
    let mut response = match access {
        Access::Granted { shows_keys } => {
            connection.is_health.store(is_health_path(request.uri().path()), Ordering::Relaxed);
            request.extensions_mut().insert(ShowsKeys(shows_keys));
            if !is_health_path(request.uri().path()) {
                // If a client sends many at once, other clients are served in between.
                tokio::task::yield_now().await;
            }
            let response = next.run(request).await;
            connection.is_health.store(false, Ordering::Relaxed);
            response
        }
        Access::WrongHost => {
            refuse(&counters.wrong_host, StatusCode::MISDIRECTED_REQUEST, WRONG_HOST)
        }
        Access::NeedsLogin => refuse(&counters.denied, StatusCode::UNAUTHORIZED, NEEDS_LOGIN),
        Access::WrongLogin => refuse(&counters.wrong_login, StatusCode::UNAUTHORIZED, WRONG_LOGIN),
        Access::TooManyFailed => {
            refuse(&counters.wrong_login, StatusCode::TOO_MANY_REQUESTS, TOO_MANY_FAILED)
        }
        Access::Denied => refuse(&counters.denied, StatusCode::FORBIDDEN, DENIED),
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Basic realm=\"dovetail\", charset=\"UTF-8\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The delay of the answer to a login. As on the other ports, a failure counts against its address,
/// whose next answers wait longer, right or wrong.
pub(super) fn login_wait(
    logins: &Logins,
    origin: Origin,
    access: Access,
    now: UnixMillis,
) -> Duration {
    let is_wrong = access == Access::WrongLogin;
    let least = if is_wrong { WRONG_LOGIN_PAUSE } else { Duration::ZERO };
    match logins.pace(origin, !is_wrong, now) {
        Pace::Now => least,
        Pace::At(until) => least.max(Duration::from_millis(until.0.saturating_sub(now.0))),
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    answer(openmetrics::CONTENT_TYPE, openmetrics::text(&Snapshot::take(&shared)))
}

async fn stats(
    State(shared): State<Arc<Shared>>,
    Extension(ShowsKeys(shows_keys)): Extension<ShowsKeys>,
) -> Response {
    shared.draw_sizes();
    let snapshot = Snapshot { shows_keys, ..Snapshot::take(&shared) };
    answer(JSON, format!("{}\n", snapshot.json()))
}

/// 200 only if a value was stored and read back through every worker.
async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    let probe = tokio::task::spawn_blocking(move || shared.probe(PROBE_MAX));
    let reason = match probe.await {
        Ok(Ok(())) => return answer(TEXT, "ready\n"),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the probe did not finish".to_owned(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, answer(TEXT, format!("not ready: {reason}\n")))
        .into_response()
}

/// A body with its type.
fn answer(content_type: &'static str, body: impl IntoResponse) -> Response {
    let mut response = body.into_response();
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
