//! Receives signals and requests of Prometheus. Runs in its own thread, so that it outlives clients
//! and answers while circuits are measured.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::get;
use ff_operator::http;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::figures;
use crate::signals::Signals;

/// Starts the thread; the receiver has the number of signals received so far.
pub(super) fn start(
    listener: Option<TcpListener>,
    registry: Registry,
    hosts: Vec<String>,
) -> Result<watch::Receiver<u32>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("Failed to start the runtime")?;
    let inside = runtime.enter();
    let signals = Signals::listen().context("Failed to listen for signals")?;
    let listener = listener
        .map(tokio::net::TcpListener::from_std)
        .transpose()
        .context("Failed to set up the listener of --metrics")?;
    drop(inside);
    let (sender, receiver) = watch::channel(0);
    let run = move || {
        runtime.block_on(async {
            tokio::select! {
                never = count(signals, &sender) => match never {},
                never = answer(listener, registry, &hosts) => match never {},
            }
        })
    };
    thread::Builder::new().name("outside".to_owned()).spawn(run).context("Failed to start")?;
    Ok(receiver)
}

async fn count(mut signals: Signals, sender: &watch::Sender<u32>) -> Infallible {
    loop {
        signals.recv().await;
        sender.send_modify(|count| *count += 1);
    }
}

/// Answers Prometheus, if there is a listener.
async fn answer(
    listener: Option<tokio::net::TcpListener>,
    registry: Registry,
    hosts: &[String],
) -> Infallible {
    let Some(listener) = listener else { return std::future::pending().await };
    let missing = || async { (StatusCode::NOT_FOUND, "Only /metrics is served here.\n") };
    let router = Router::new()
        .route("/metrics", get(metrics))
        .fallback(missing)
        .with_state(Arc::new(registry));
    http::serve(listener, router, hosts).await
}

async fn metrics(State(registry): State<Arc<Registry>>, request: HeaderMap) -> Response {
    http::figures(&request, figures::text(&registry))
}
