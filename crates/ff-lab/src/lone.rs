//! A relay without a network: it accepts links and answers on them at once.
//!
//! Its only authority is at a port where nothing listens, so it never bootstraps and sends nothing
//! to others.

use std::fs;
use std::ops::Deref;

use crate::error::{Error, Result};
use crate::keys::{find_tor, private_dir};
use crate::node::{Node, NodeParts, Role};
use crate::own_dir::OwnDir;
use crate::ports::Port;
use crate::torrc::{self, Common};

/// An authority that does not exist.
const NOBODY: &str = "DirAuthority nobody orport=1 no-v2 \
    v3ident=0123456789ABCDEF0123456789ABCDEF01234567 127.0.0.1:1 \
    0123456789ABCDEF0123456789ABCDEF01234567\n";

/// A running relay; dropping it ends the process.
#[derive(Debug)]
pub struct LoneRelay {
    /// Must end before its directory is removed.
    node: Node,
    _dir: OwnDir,
}

impl LoneRelay {
    /// Starts Debian's tor and waits until it accepts links, about half a second.
    ///
    /// # Errors
    /// If there is no tor; [`Error::Exited`] with the end of its log.
    pub fn start() -> Result<Self> {
        let made = OwnDir::new_in(&std::env::temp_dir())?;
        let (name, role, dir) = ("lone".to_owned(), Role::Middle, made.path().join("lone"));
        private_dir(&dir)?;
        let (tor, port) = (find_tor(), Port::reserve()?);
        let (dir_port, socks_port, core, host, ending) = Default::default();
        let node =
            NodeParts { name, role, tor, dir, port, dir_port, socks_port, core, host, ending };
        let node = Node::new(node);
        let common = Common {
            authorities: NOBODY.to_owned(),
            certificates: String::new(),
            extra: Vec::new(),
        };
        let text = torrc::common(node.name(), node.ip(), node.data_dir(), &common)
            + &torrc::relay(node.or_addr(), None, false, None)
            + "PublishServerDescriptor 0\n";
        fs::write(node.torrc(), text).map_err(Error::io("write a torrc"))?;
        node.spawn()?;
        node.wait_until_controllable()?;
        Ok(Self { node, _dir: made })
    }
}

impl Deref for LoneRelay {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}
