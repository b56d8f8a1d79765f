//! Bodies of responses, and the permit that is held until a body has ended.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The response body of the service behind a layer, or of the layer's own answer. Data, trailers and the size hint
    /// pass through unchanged.
    ///
    /// If the layer uses permits, the body holds the permit `P` of its request until it has ended or is dropped.
    #[derive(Debug)]
    pub struct LayerBody<B, P = ()> {
        #[pin]
        kind: Kind<B>,
        // Declared after the body: a body dropped half-way is gone before the next request is let in.
        permit: Option<P>,
    }
}

pin_project! {
    #[project = KindProjection]
    #[derive(Debug)]
    enum Kind<B> {
        Passed { #[pin] body: B },
        // Boxed, since the bodies of services are smaller and move with each response.
        Own { bytes: Box<Bytes> },
    }
}

impl<B, P> LayerBody<B, P> {
    /// The response body of the service behind the layer, with the permit of its request.
    #[inline]
    pub(crate) fn holding(body: B, permit: Option<P>) -> LayerBody<B, P> {
        LayerBody { kind: Kind::Passed { body }, permit }
    }

    /// The body of the layer's own answer.
    pub(crate) fn own(bytes: Bytes) -> LayerBody<B, P> {
        LayerBody { kind: Kind::Own { bytes: Box::new(bytes) }, permit: None }
    }
}

/// Layers of other crates answer with an empty body of this type, such as the timeout layer of tower-http.
impl<B: Default, P> Default for LayerBody<B, P> {
    fn default() -> LayerBody<B, P> {
        LayerBody::holding(B::default(), None)
    }
}

impl<B, P> Body for LayerBody<B, P>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        match this.kind.project() {
            KindProjection::Passed { mut body } => {
                let frame = ready!(body.as_mut().poll_frame(context));
                // A reader of the last frame need not poll again or drop the body at once.
                let goes_on = matches!(&frame, Some(Ok(frame)) if !frame.is_trailers()) && !body.is_end_stream();
                if !goes_on {
                    *this.permit = None;
                }
                Poll::Ready(frame)
            }
            KindProjection::Own { bytes } if bytes.is_empty() => Poll::Ready(None),
            KindProjection::Own { bytes } => Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut **bytes).into())))),
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
