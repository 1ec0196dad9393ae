// Preloaded by `fathom fix`: each connection that the program opens gets the PRAGMAs of the variable FATHOM_PRAGMAS.
//
// SQLite reads no settings from its environment, and most of them last no longer than a connection. So the functions that open one are
// interposed: ours call the library's and then execute the PRAGMAs. Settings that the program makes afterwards remain in force.
//
// It creates the file named by FATHOM_PRAGMAS_SEEN to show that it was called: in a program with SQLite linked into it, it is not.

typedef struct sqlite3 sqlite3;

extern void *dlopen(const char *, int);
extern void *dlsym(void *, const char *);
extern char *getenv(const char *);
extern int open(const char *, int, ...);
extern int close(int);

#define OWN __attribute__((visibility("default")))
#define NEXT ((void *)-1L)
#define LAZY 1
#define NOLOAD 4
#define CREATE_TO_WRITE 0101 // O_CREAT | O_WRONLY
#define ERROR 1

// A library that was itself loaded by dlopen, as by Python's modules, is in no global scope: look it up by its name.
static void *real(const char *name) {
	void *found = dlsym(NEXT, name);
	if (found)
		return found;
	void *library = dlopen("libsqlite3.so.0", LAZY | NOLOAD);
	return library ? dlsym(library, name) : (void *)0;
}

static void set(sqlite3 *db) {
	const char *seen = getenv("FATHOM_PRAGMAS_SEEN");
	if (seen) {
		int file = open(seen, CREATE_TO_WRITE, 0600);
		if (file >= 0)
			close(file);
	}
	const char *pragmas = getenv("FATHOM_PRAGMAS");
	int (*exec)(sqlite3 *, const char *, void *, void *, char **) = real("sqlite3_exec");
	if (db && pragmas && exec)
		exec(db, pragmas, 0, 0, 0);
}

OWN int sqlite3_open(const char *name, sqlite3 **db) {
	int (*own)(const char *, sqlite3 **) = real("sqlite3_open");
	int result = own ? own(name, db) : ERROR;
	if (!result)
		set(*db);
	return result;
}

OWN int sqlite3_open16(const void *name, sqlite3 **db) {
	int (*own)(const void *, sqlite3 **) = real("sqlite3_open16");
	int result = own ? own(name, db) : ERROR;
	if (!result)
		set(*db);
	return result;
}

OWN int sqlite3_open_v2(const char *name, sqlite3 **db, int flags, const char *vfs) {
	int (*own)(const char *, sqlite3 **, int, const char *) = real("sqlite3_open_v2");
	int result = own ? own(name, db, flags, vfs) : ERROR;
	if (!result)
		set(*db);
	return result;
}
