//! What each path of the admin port answers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::metrics::{Snapshot, openmetrics};
use crate::shared::Shared;

/// For all workers together to store and read back a value.
const PROBE_MAX: Duration = Duration::from_secs(1);

const PAGE: &str = include_str!("page/index.html");
const SCRIPT: &str = include_str!("page/page.js");
const CHARTS: &str = include_str!("page/charts.js");
const STYLE: &str = include_str!("page/page.css");
/// By the name that browsers ask for where no page names one.
const ICON: &str = include_str!("page/icon.svg");
const NOT_FOUND: &str = "not found: there are /, /stats, /metrics, /healthz and /readyz\n";

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// All routes; axum answers 405 to any method but GET and HEAD.
pub fn router(shared: Arc<Shared>) -> Router {
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
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    answer(openmetrics::CONTENT_TYPE, openmetrics::text(&Snapshot::take(&shared)))
}

async fn stats(State(shared): State<Arc<Shared>>) -> Response {
    shared.draw_sizes();
    answer(JSON, format!("{}\n", Snapshot::take(&shared).json()))
}

/// 200 only if a value went through every worker and came back.
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

/// A body with its type; nothing is cached, nothing from elsewhere is loaded.
fn answer(content_type: &'static str, body: impl IntoResponse) -> Response {
    let mut response = body.into_response();
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'self'"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
