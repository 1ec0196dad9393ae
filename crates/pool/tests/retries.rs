//! How often a coordinator tries to reach a node that is gone, and one that refuses it. The clock is virtual.

use pool::connect::{Connect, Stream};
use pool::layout::Arrangement;
use pool::link::{Control, Options};
use pool::node::Node;
use pool::store::Store;
use pool::volume::Volume;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::{Instant, sleep};

/// Who answers at the node's address, and what was done there.
#[derive(Default)]
struct Place {
    node: Option<Arc<Node>>,
    attempts: Vec<Instant>,
    served: Vec<AbortHandle>,
}

fn connect_to(place: &Rc<RefCell<Place>>) -> Connect {
    let place = place.clone();
    Rc::new(move |_| {
        let mut now = place.borrow_mut();
        now.attempts.push(Instant::now());
        let stream = now.node.clone().map(|node| {
            let (here, there) = tokio::io::duplex(64 << 10);
            let serves = async move { drop(node.serve_connection(there).await) };
            now.served.push(tokio::task::spawn_local(serves).abort_handle());
            Box::new(here) as Box<dyn Stream>
        });
        Box::pin(async move { stream.ok_or_else(|| io::ErrorKind::ConnectionRefused.into()) })
    })
}

fn memory_node() -> Arc<Node> {
    Node::new(Arc::new(Store::memory(1 << 20, "node0".into()).expect("memory")), true)
}

/// The times between the attempts of the next `duration`, without that to the first.
async fn pauses(place: &RefCell<Place>, duration: Duration) -> Vec<Duration> {
    place.borrow_mut().attempts.clear();
    // A fixed wait: the clock is virtual.
    sleep(duration).await;
    place.borrow().attempts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn absent_node_is_tried_ten_times_a_second_refusing_one_once() {
    LocalSet::new()
        .run_until(async {
            let place = Rc::new(RefCell::new(Place { node: Some(memory_node()), ..Place::default() }));
            let (connect, address) = (connect_to(&place), SocketAddr::from(([127, 0, 0, 1], 1)));
            let (options, report) = (Options::default(), Rc::new(drop));
            let arrangement = Arrangement::Concatenated;
            let volume = Volume::join(&connect, &[address], "p", arrangement, &options, &Control::Tuned, report).await;
            let _volume = volume.expect("a pool");

            place.borrow_mut().node = None;
            place.borrow_mut().served.drain(..).for_each(|task| task.abort());
            let pauses_absent = pauses(&place, Duration::from_secs(5)).await;
            assert!(pauses_absent.len() >= 48, "{pauses_absent:?}");
            // A timer of tokio has a resolution of a millisecond.
            let is_tenth = |pause: &Duration| (100..=101).contains(&pause.as_millis());
            assert!(pauses_absent.iter().all(is_tenth), "{pauses_absent:?}");

            // A store that knows nothing of the pool.
            place.borrow_mut().node = Some(memory_node());
            // A fixed wait: the clock is virtual.
            sleep(Duration::from_secs(1)).await;
            let pauses_refused = pauses(&place, Duration::from_secs(10)).await;
            assert!(pauses_refused.len() >= 8, "{pauses_refused:?}");
            let is_second = |pause: &Duration| (1000..=1001).contains(&pause.as_millis());
            assert!(pauses_refused.iter().all(is_second), "{pauses_refused:?}");
        })
        .await;
}
