// Package rest registers the operations of the HTTP API: an operation is a Route, which has its place in the OpenAPI document and
// the permission that it needs, and a handler of plain Go types. A request passes authorization (its Route), the parsing of
// parameters by huma, and its handler. Every error is a *muster.Error and becomes an application/problem+json answer here.
//
// A Router is safe for concurrent requests after Finish.
package rest
