//! An isolated network segment: a network namespace for the calling thread and what it starts, joined by one wire to
//! another one that stands for the world. The inside has no route but to the other end of the wire. Both are gone
//! when their threads and programs are; no network of the machine is touched.

use std::{
    net::Ipv4Addr,
    process::Command,
    sync::mpsc::{Sender, channel},
    thread,
};

use nix::{
    sched::{CloneFlags, unshare},
    unistd::gettid,
};

/// The address of the inside.
pub const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The address of the outside on the wire: all that the inside can reach.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

type Work = Box<dyn FnOnce() + Send>;

/// The outside; dropped, it ends.
pub struct Outside {
    work: Sender<Work>,
}

impl Outside {
    /// Moves the calling thread into a segment of its own. `addresses` are further ones of the outside, which
    /// the inside has no route to.
    ///
    /// # Panics
    /// When namespaces cannot be had: that needs root.
    pub fn leave(addresses: &[Ipv4Addr]) -> Outside {
        let (work, orders) = channel::<Work>();
        let (tell, told) = channel();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace (root's right)");
            tell.send(gettid()).expect("the segment is being made");
            for order in orders {
                order();
            }
        });
        let outside = Outside { work };
        let thread = told.recv().expect("the outside is there").to_string();
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace (root's right)");
        ip("link set lo up");
        ip(&format!(
            "link add wire type veth peer name wire netns {thread}"
        ));
        ip(&format!("address add {INSIDE}/30 dev wire"));
        ip("link set wire up");
        let addresses = addresses.to_vec();
        outside.run(move || {
            ip("link set lo up");
            ip(&format!("address add {GATEWAY}/30 dev wire"));
            ip("link set wire up");
            for address in addresses {
                ip(&format!("address add {address}/32 dev lo"));
            }
        });
        outside
    }

    /// Does something outside. Sockets and threads made there stay there.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        let order: Work = Box::new(move || {
            // Nobody to tell means that the test has failed already.
            let _ = tell.send(work());
        });
        self.work.send(order).expect("the outside is there");
        told.recv().expect("it was done outside")
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    let output = output.unwrap_or_else(|error| panic!("could not run ip {arguments}: {error}"));
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
