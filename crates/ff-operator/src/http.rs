//! Serves HTTP: to the operator on loopback, the page of a coordinator and figures of other
//! programs, under loopback's names and those that the operator lists; to everybody, what is
//! protected by a secret of its own.
//!
//! Connections are bounded in number and time.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;

pub mod connection;
mod exposition;
mod guard;

pub use connection::Accept;
pub use exposition::{figures, text_format};

/// Answers whoever connects, until it is dropped: by loopback's names and by these.
pub async fn serve(listener: TcpListener, router: Router, hosts: &[String]) -> Infallible {
    connection::serve(listener, guarded(router, hosts), connection::Deadlines::default()).await
}

/// Answers all clients, under any name, until it is dropped. Disconnects a client that reads
/// nothing for `stall`.
pub async fn serve_to_all(listener: impl Accept, router: Router, stall: Duration) -> Infallible {
    let deadlines = connection::Deadlines { stall, ..connection::Deadlines::default() };
    connection::serve(listener, router, deadlines).await
}

/// The same answers, for those only who ask by loopback's names or by these.
pub fn guarded(router: Router, hosts: &[String]) -> Router {
    let guard = guard::Guard::new(hosts);
    router.layer(axum::middleware::from_fn(move |request, next| {
        guard::guarded(guard.clone(), request, next)
    }))
}
