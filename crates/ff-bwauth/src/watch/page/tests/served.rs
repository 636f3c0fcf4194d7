//! The page of an invented coordinator.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ff_base::utc::now_unix_secs as now;
use ff_operator::http::connection::Deadlines;
use ff_plan::publish::v3bw::Publication;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::super::{PageOptions, Pages, run};
use crate::watch::made_up::{fill, publication, publish, status};
use crate::watch::status::Status;

/// A page being served.
pub(super) struct Served {
    /// The directory of its files.
    pub(super) dir: TempDir,
    /// Its address.
    pub(super) addr: SocketAddr,
    /// The status of its coordinator.
    pub(super) status: watch::Sender<Option<Arc<Status>>>,
}

impl Served {
    /// Serves a page with a store of this many relays.
    pub(super) async fn new(relays: u32) -> Self {
        Self::with(relays, Deadlines::default()).await
    }

    /// The same with these deadlines.
    pub(super) async fn with(relays: u32, deadlines: Deadlines) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store.sqlite");
        if relays > 0 {
            fill(&path, relays);
            publish(dir.path(), relays);
        }
        Self::over(dir, &path, status(relays), publication(relays), deadlines).await
    }

    /// The same with this store.
    pub(super) async fn over(
        dir: TempDir,
        store: &Path,
        shown: Status,
        network: Publication,
        deadlines: Deadlines,
    ) -> Self {
        let (status, live) = watch::channel(Some(Arc::new(shown)));
        let (_, network) = watch::channel(Some(Arc::new(network)));
        let options = PageOptions {
            publish_dir: Some(PathBuf::from(dir.path())),
            network: Some(network),
            figures_per_relay: true,
            ..PageOptions::default()
        };
        let pages = Pages::new(live, store.to_owned(), options);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        tokio::spawn(run(listener, pages, deadlines));
        Self { dir, addr, status }
    }
}

impl Served {
    /// Sends the same status with a new time.
    pub(super) fn renew(&self) {
        self.status.send_modify(|status| {
            if let Some(status) = status {
                Arc::make_mut(status).now_unix_secs = now();
            }
        });
    }
}

/// Abandoned answers may still be computed, and SQLite creates files for that.
impl Drop for Served {
    fn drop(&mut self) {
        let late = Instant::now() + Duration::from_secs(10);
        let path = self.dir.path();
        while path.exists() && Instant::now() < late {
            if std::fs::remove_dir_all(path).is_err() {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}
