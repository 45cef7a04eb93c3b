// Package dashboard serves the built dashboard, a single-page application, from the files that the binary embeds.
//
// Files below /assets/ have a hash of their content in their name and may be cached for good; everything else is validated by its
// ETag. A file with a .br or .gz file beside it is sent compressed to clients that accept this. A path that is no file and that
// a browser opens as a page is answered with index.html, so that every view has an address of its own.
//
// The content security policy allows nothing from other origins and no inline scripts. No page may be framed.
package dashboard
