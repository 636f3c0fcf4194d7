//! Answers over HTTP on loopback for whoever operates this: the page of a coordinator, and figures of other programs.
//!
//! Connections are bounded in number and time, and only who asks for a name of loopback, or one that the operator gave,
//! is answered.

use std::convert::Infallible;

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

/// The same answers, for those only who ask by loopback's names or by these.
pub(crate) fn guarded(router: Router, hosts: &[String]) -> Router {
    let guard = guard::Guard::new(hosts);
    router.layer(axum::middleware::from_fn(move |request, next| {
        guard::guarded(guard.clone(), request, next)
    }))
}
