// Package usage is muster usage, and the words for what tasks used in other
// commands.
package usage
