//! Processes that can be killed, stopped and started again.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::program::finish;

/// A process and how it is made; it ends with this.
pub(crate) struct Process {
    /// Makes the command that starts it.
    make: Box<dyn Fn() -> Command>,
    /// The running process, if any.
    child: Option<Child>,
}

impl Process {
    /// One that is not started.
    pub(crate) fn new(make: impl Fn() -> Command + 'static) -> Self {
        Self { make: Box::new(make), child: None }
    }

    /// Starts it.
    pub(crate) fn start(&mut self) -> &mut Child {
        assert!(self.child.is_none(), "it runs already");
        let child = (self.make)().spawn().expect("the program runs");
        self.child.insert(child)
    }

    /// Kills it, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends it as a service's manager does, which kills what has not ended after a minute.
    pub(crate) fn terminate(&mut self) {
        self.signal("TERM");
        let until = Instant::now() + Duration::from_secs(60);
        let child = self.child.as_mut().expect("it runs");
        while child.try_wait().expect("its state").is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
    }

    /// Sends it a signal, by its name without SIG.
    pub(crate) fn signal(&self, name: &str) {
        let child = self.child.as_ref().expect("it runs");
        let line = format!("kill -{name} {}", child.id());
        finish(Command::new("sh").args(["-c", &line]));
    }

    /// Fails if it has ended by itself, and tells what it said last.
    pub(crate) fn assert_running(&mut self, who: &str, said: impl Fn() -> String) {
        let child = self.child.as_mut().expect("it was started");
        let ended = child.try_wait().expect("its state");
        assert!(ended.is_none(), "{who} has ended by itself: {ended:?}; it said\n{}", said());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
