//! Where the supervisor listens: a datagram socket with a path, or with a name in Linux's abstract namespace.
//!
//! The crate `sd-notify` knows the words, but reaches only paths; a name is what some containers' supervisors give.

use std::{
    ffi::OsStr,
    io,
    os::unix::{
        ffi::OsStrExt,
        net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

/// For a supervisor that does not read: what we do must not depend on it.
const SEND_LIMIT: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub(super) struct Socket {
    ours: UnixDatagram,
    theirs: SocketAddr,
}

impl Socket {
    /// Opens a socket towards that address: a path, or `@NAME`. Whether somebody listens there is not looked at.
    pub(super) fn to(address: &OsStr) -> io::Result<Self> {
        let theirs = match address.as_bytes() {
            [b'/', ..] => SocketAddr::from_pathname(address)?,
            [b'@', name @ ..] => abstract_name(name)?,
            _ => return Err(io::Error::other("it is neither a path nor @NAME")),
        };
        let ours = UnixDatagram::unbound()?;
        ours.set_write_timeout(Some(SEND_LIMIT))?;
        Ok(Self { ours, theirs })
    }

    pub(super) fn send(&self, text: &str) -> io::Result<()> {
        self.ours.send_to_addr(text.as_bytes(), &self.theirs).map(|_| ())
    }
}

#[cfg(target_os = "linux")]
fn abstract_name(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_name(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::other("names without a path are Linux's"))
}
