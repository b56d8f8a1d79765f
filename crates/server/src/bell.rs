//! A future that is polled only when it was woken itself.
//!
//! A connection's task is woken for every request, and beside the connection it waits for what comes every few seconds
//! or once in a life. Asking after those each time takes as long as reading the request's head.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Wake, Waker};

/// Wakes a task, and remembers that it did.
struct Bell {
    rang: AtomicBool,
    task: Waker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

/// Awaits `future`, whatever else its task is woken for.
pub(crate) async fn when_woken<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut bell: Option<Arc<Bell>> = None;
    poll_fn(|context| {
        let bell = match &bell {
            Some(bell) if bell.task.will_wake(context.waker()) => bell,
            // The first time, or in another task.
            _ => bell.insert(Arc::new(Bell { rang: AtomicBool::new(true), task: context.waker().clone() })),
        };
        if !bell.rang.load(Ordering::Relaxed) || !bell.rang.swap(false, Ordering::Acquire) {
            return Poll::Pending;
        }
        future.as_mut().poll(&mut std::task::Context::from_waker(&Waker::from(Arc::clone(bell))))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::task::Context;

    use super::*;

    /// Counts its polls, and keeps the waker of the last.
    #[derive(Default)]
    struct Polled {
        count: Cell<u32>,
        waker: RefCell<Option<Waker>>,
    }

    impl Polled {
        async fn until(&self, count: u32) {
            poll_fn(|context| {
                self.count.set(self.count.get() + 1);
                self.waker.replace(Some(context.waker().clone()));
                if self.count.get() == count { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    #[test]
    fn only_what_was_woken_is_polled() {
        let polled = Polled::default();
        let mut waiting = pin!(when_woken(polled.until(4)));
        let mut poll = |task: &Waker| waiting.as_mut().poll(&mut Context::from_waker(task));
        let (first, other) = (Waker::from(Arc::new(Task)), Waker::from(Arc::new(Task)));
        let wake = || polled.waker.borrow().as_ref().unwrap().wake_by_ref();
        let mut expect = |task: &Waker, count: u32, done: Poll<()>| {
            assert_eq!(poll(task), done);
            assert_eq!(polled.count.get(), count);
        };
        expect(&first, 1, Poll::Pending);
        expect(&first, 1, Poll::Pending);
        wake();
        expect(&first, 2, Poll::Pending);
        expect(&first, 2, Poll::Pending);
        // Another task has to be woken from now on.
        expect(&other, 3, Poll::Pending);
        expect(&other, 3, Poll::Pending);
        wake();
        expect(&other, 4, Poll::Ready(()));
    }

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
}
