// Package api serves the HTTP API below /api/v1, its documentation, the health
// checks, and the endpoints through which workers join and connect.
//
// A request passes, in this order: the access log, authentication (auth.go, package access), its
// route, authorization, the parsing of parameters by huma (package rest), and its
// handler. There is one file per resource. Every error is a *muster.Error and becomes
// an application/problem+json answer in package rest.
//
// The OpenAPI document is generated from the types of the handlers; package schema
// describes the JSON form of Muster's own types.
//
// Streams (logs, usage, events) run until their client leaves or the server's base
// context ends; each write has a deadline. After 15 seconds without data a stream sends
// a keep-alive comment, with the id of the last record that was read for the client, so
// that the client can resume there.
package api
