// Package oidc signs users in with an OpenID Connect provider, such as Google, Microsoft Entra ID, GitLab, Keycloak or Dex: in a browser with the authorization
// code flow and PKCE (OpenID Connect Core 1.0, RFC 7636), and for programs without a browser with device codes (RFC 8628). A user gets the role of the first
// Rule that its claims match.
//
// What a sign-in needs to remember is sealed and kept by the caller's client, so that requests without a key cost the server no memory.
package oidc
