package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/muster-dev/muster"
	"github.com/ncruces/go-sqlite3/driver"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// applicationID marks a database file as Muster's: "Mstr".
const applicationID = 0x4d737472

// migrate updates the schema of the database at path.
func migrate(ctx context.Context, path string) (err error) {
	db, err := driver.Open(databaseURI(path))
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if err := claimFile(ctx, db, path); err != nil {
		return err
	}
	p, err := migrator(db)
	if err != nil {
		return err
	}
	current, supported, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	if current > supported {
		return newerSchemaError(path, current, supported)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the schema from version %d to %d: %w", current, supported, err)
	}
	return nil
}

func migrator(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
}

// claimFile marks a new file as Muster's and refuses one of another program.
func claimFile(ctx context.Context, db *sql.DB, path string) error {
	var id, tables int64
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return fmt.Errorf("read the header: %w", err)
	}
	if id == applicationID {
		return nil
	}
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return fmt.Errorf("read the header: %w", err)
	}
	if id != 0 || tables > 0 {
		return muster.Errorf(muster.Conflict, "the file %s is the database of another program: choose another data directory", path)
	}
	if _, err := db.ExecContext(ctx, fmt.Sprintf("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA application_id = %d", applicationID)); err != nil {
		return fmt.Errorf("mark the file: %w", err)
	}
	return nil
}
