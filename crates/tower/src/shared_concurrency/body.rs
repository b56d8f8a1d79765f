//! A response that holds a place until its body has ended.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::SharedPermit;
use crate::body::LayerBody;

pin_project! {
    /// The body of the service behind a [`SharedConcurrencyLayer`](crate::SharedConcurrencyLayer), which holds a place until
    /// it has ended or is dropped, or that of the layer's own answer.
    #[derive(Debug)]
    pub struct HeldBody<B> {
        #[pin]
        body: LayerBody<B>,
        permit: Option<SharedPermit>,
    }
}

impl<B: Body> HeldBody<B> {
    /// What the service behind the layer answered.
    pub(super) fn held(body: B, permit: Option<SharedPermit>) -> HeldBody<B> {
        // Of what has ended already nobody may ask, or drop it soon.
        let permit = permit.filter(|_| !body.is_end_stream());
        HeldBody { body: LayerBody::passed(body), permit }
    }

    /// What the layer answers itself.
    pub(super) fn own(bytes: Bytes) -> HeldBody<B> {
        HeldBody { body: LayerBody::own(bytes), permit: None }
    }
}

impl<B> Body for HeldBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        if frame.is_none() || this.body.is_end_stream() {
            *this.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
