//! Ports that no other test gets in between.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// A port of 127.0.0.1 where nobody listens, and where nobody will as long as the process lives: a
/// port that was only free a moment ago may be somebody else's by now.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn closed_port() -> SocketAddr {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let address = socket.local_addr().expect("it is bound");
    Box::leak(Box::new(socket));
    address
}

#[cfg(test)]
mod tests {
    #[test]
    fn nobody_listens_and_nobody_gets_it() {
        let address = super::closed_port();
        let error = std::net::TcpStream::connect(address).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        let error = std::net::TcpListener::bind(address).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    }
}
