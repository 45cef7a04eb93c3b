// Package term draws for people: tables that fit the terminal, a status line
// that stays below the output, bars, and questions. On anything but a terminal
// the same calls write plain text: no colours, no cursor movement, no limit on
// the width.
//
// Texts from tasks and other users pass through Clean before they are drawn, so
// that a task's name cannot move the cursor or fake another line.
package term
