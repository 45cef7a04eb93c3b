// Package schema says in the OpenAPI document what the types and parameters of the API look like: forms, patterns and bounds that the types of Go
// do not tell.
package schema
