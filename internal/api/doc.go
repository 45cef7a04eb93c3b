// Package api is the HTTP API: what is below /api/v1, its documentation, the
// health checks, and the door through which workers join and connect.
//
// A request passes, in this order: the access log, the check of its token
// (auth.go), its route, the check that its key may do this (route.go), the parsing of its
// parameters by huma, and its handler. There is one file for each resource. Every error, from wherever it comes, is a
// *muster.Error, and becomes an application/problem+json answer at one place (problem.go).
//
// What the OpenAPI document says is generated from the types of the handlers;
// schema.go tells how Muster's own types look in JSON.
//
// Streams (logs, usage, events) run until their client leaves or the server's base
// context ends; each write has a deadline. A stream on which nothing was sent for 15 seconds sends a comment, so that both sides know that
// the other is there, with the id of what was read for the client until then, so that the client resumes there.
package api
