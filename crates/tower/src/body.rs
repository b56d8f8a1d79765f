//! The body of what a layer lets through, or of its own answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of the service behind a layer, or that of the layer's own answer.
    #[derive(Debug)]
    pub struct LayerBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindOf]
    #[derive(Debug)]
    enum Kind<B> {
        Passed { #[pin] body: B },
        Own { bytes: Bytes },
    }
}

impl<B> LayerBody<B> {
    /// What the service behind the layer answered.
    pub(crate) fn passed(body: B) -> LayerBody<B> {
        LayerBody { kind: Kind::Passed { body } }
    }

    /// What the layer answers itself.
    pub(crate) fn own(bytes: Bytes) -> LayerBody<B> {
        LayerBody { kind: Kind::Own { bytes } }
    }
}

impl<B: Default> Default for LayerBody<B> {
    fn default() -> LayerBody<B> {
        LayerBody::passed(B::default())
    }
}

impl<B> Body for LayerBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().kind.project() {
            KindOf::Passed { body } => body.poll_frame(context),
            KindOf::Own { bytes } if bytes.is_empty() => Poll::Ready(None),
            KindOf::Own { bytes } => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes).into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Passed { body } => body.is_end_stream(),
            Kind::Own { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Passed { body } => body.size_hint(),
            Kind::Own { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
