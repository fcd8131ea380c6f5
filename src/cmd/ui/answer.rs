//! The answers of the dashboard: pages, and ways to other pages.

use std::sync::Arc;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, HttpResponseBuilder};

use crate::exit::Failure;

use super::app::App;
use super::pages::{self, Page, status_of};
use super::parts::{bare, sentence};
use super::request::Request;

/// A page, or the page that says why there is none.
pub(super) async fn render(app: &Arc<App>, cookie: &str, asked: &Request) -> HttpResponse {
    match pages::page(app, cookie, asked).await {
        Ok(Page::To(path)) => see(&path).finish(),
        Ok(Page::Shown { status, html }) => page(status, html),
        Err(failure) => failed(&failure),
    }
}

pub(super) fn see(path: &str) -> HttpResponseBuilder {
    let mut builder = HttpResponse::SeeOther();
    builder.insert_header((header::LOCATION, path));
    builder
}

pub(super) fn page(status: StatusCode, html: String) -> HttpResponse {
    HttpResponse::build(status).content_type("text/html; charset=utf-8").body(html)
}

pub(super) fn failed(failure: &Failure) -> HttpResponse {
    page(status_of(failure), bare("That did not work", &sentence(failure)))
}
