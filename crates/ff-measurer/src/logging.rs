//! What the commands log, and how much.

/// Logs to standard error; `RUST_LOG` beats `verbose`.
pub fn init_logging(verbose: u8) {
    let default = match verbose {
        // Arti's client warns of small networks, and of circuits for clients, of which there are none here.
        0 => "warn,tor_circmgr=error,tor_guardmgr=error,tor_netdir=error",
        1 => "info",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
