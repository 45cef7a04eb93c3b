// Package jsonschema compiles JSON Schemas of the drafts 4, 6, 7, 2019-09 and 2020-12, and validates values with them.
//
// It is a copy of github.com/santhosh-tekuri/jsonschema/v6 at v6.0.3, which is licensed under the Apache License 2.0 (LICENSE). That
// library compiles the metaschemas of all drafts when a program starts; this copy compiles those of a draft when its first schema is
// compiled. It has no custom vocabularies, no assertions of content, no files or URLs without a loader, and no texts of errors in several
// languages. TestLikeOriginal compares it with the library. See ADR 54.
package jsonschema
