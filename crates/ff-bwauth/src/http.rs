//! Answers over HTTP: on loopback for whoever operates this, the page of a coordinator and figures of other programs, where
//! only who asks for a name of loopback, or one that the operator gave, is answered; and to all, what has a secret of its own.
//!
//! Connections are bounded in number and time.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;

// They stand beside the page, which was there first.
#[path = "watch/page/connection.rs"]
pub(crate) mod connection;
mod exposition;
#[path = "watch/page/guard.rs"]
pub(crate) mod guard;

pub use exposition::{figures, text_format};

/// Answers whoever connects, until it is dropped: by loopback's names and by these.
pub async fn serve(listener: TcpListener, router: Router, hosts: &[String]) -> Infallible {
    connection::serve(listener, guarded(router, hosts), connection::Deadlines::default()).await
}

/// Answers whoever connects, by whatever name, until it is dropped; who takes nothing of an answer for so long is let go.
pub async fn serve_to_all(listener: TcpListener, router: Router, stall: Duration) -> Infallible {
    let deadlines = connection::Deadlines { stall, ..connection::Deadlines::default() };
    connection::serve(listener, router, deadlines).await
}

/// The same answers, for those only who ask by loopback's names or by these.
pub(crate) fn guarded(router: Router, hosts: &[String]) -> Router {
    let guard = guard::Guard::new(hosts);
    router.layer(axum::middleware::from_fn(move |request, next| {
        guard::guarded(guard.clone(), request, next)
    }))
}
