//! systemd's readiness protocol (sd_notify(3)): a datagram to the socket that `NOTIFY_SOCKET`
//! names.
//!
//! A unit of `Type=notify` counts as started when the server answers, so units ordered after it
//! find it ready, and `systemctl status` shows its state. Without the variable no message is sent.
//! A failed send is not an error of the server: it is logged.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable with the socket's path; a leading `@` marks an abstract socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Reports that the server answers.
pub fn ready(status: &str) {
    send(&format!("READY=1\nSTATUS={status}"));
}

/// Reports that the stop begins.
pub fn stopping(reason: &str) {
    send(&format!("STOPPING=1\nSTATUS=stopping: {}", reason.replace('\n', " ")));
}

fn send(message: &str) {
    let Some(socket) = std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send_to(&socket, message) {
        tracing::warn!(socket = %socket.display(), %error, "systemd cannot be notified");
    }
}

fn send_to(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let datagram = UnixDatagram::unbound()?;
    // A receiver whose queue is full does not block the server.
    datagram.set_nonblocking(true)?;
    datagram.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    #[test]
    fn a_message_is_one_datagram_to_a_path_or_an_abstract_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        send_to(path.as_os_str(), "READY=1\nSTATUS=x").expect("sent");
        assert_eq!(received(&socket), "READY=1\nSTATUS=x");
        let name = format!("evenkeel-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&address).expect("bound");
        send_to(OsStr::new(&format!("@{name}")), "STOPPING=1").expect("sent");
        assert_eq!(received(&socket), "STOPPING=1");
        assert!(send_to(dir.path().join("nobody").as_os_str(), "x").is_err());
    }
}
