/* The C client of Dovetail, over UDP and shared memory.
 *
 * Threads: a handle is used by one thread at a time; it may move between calls. The simplest rule
 * is one handle for each thread. Handles share nothing.
 *
 * Pointers: NULL is refused with DOVETAIL_STATUS_INVALID_ARGUMENT wherever a pointer is needed,
 * never followed; NULL with a length of 0 is an empty key or value. What is not NULL must point to
 * as much readable (for results: writable) memory as its length or its type says, for as long as
 * the call lasts. Results do not overlap with arguments. They are written only where a function
 * says so; on other statuses they stay as they were.
 *
 * Memory: a dovetail_value that a call has filled belongs to the library until
 * dovetail_value_free; do not change its pointer or its length. A handle lives until
 * dovetail_close. Values outlive their handle.
 *
 * Status: 0 is success, positive are the other answers of a working server, negative are failures,
 * of which dovetail_last_error has the words.
 *
 * Panics: a broken invariant inside the library ends the process in a release build. Built with
 * cargo build --release -p client-c --config 'profile.release.panic="unwind"'
 * the call returns DOVETAIL_STATUS_PANICKED instead; then only dovetail_close is of use.
 */

#ifndef DOVETAIL_H
#define DOVETAIL_H

/* Generated from crates/client-c; change the sources there. */

#include <stddef.h>
#include <stdint.h>

// Store in any case.
#define DOVETAIL_IF_ALWAYS 0

// Store if there is no such key; `DOVETAIL_STATUS_NOT_STORED` otherwise.
#define DOVETAIL_IF_ABSENT 1

// Store if there is such a key; `DOVETAIL_STATUS_NOT_STORED` otherwise.
#define DOVETAIL_IF_PRESENT 2

// Store if the item has this version; `DOVETAIL_STATUS_CHANGED` or `DOVETAIL_STATUS_MISSING`
// otherwise.
#define DOVETAIL_IF_VERSION 3

// The item does not expire.
#define DOVETAIL_EXPIRY_NEVER 0

// The item keeps the expiry that it has.
#define DOVETAIL_EXPIRY_KEEP 1

// The item expires `expiry_ms` milliseconds after the server stored it.
#define DOVETAIL_EXPIRY_AFTER_MS 2

// The item expires at `expiry_ms`, in milliseconds since 1970-01-01 UTC.
#define DOVETAIL_EXPIRY_AT_MS 3

// What became of a call. 0 is success, positive are answers, negative are failures.
typedef enum dovetail_status {
    // Done, found, stored.
    DOVETAIL_STATUS_OK = 0,
    // There is no such key.
    DOVETAIL_STATUS_MISSING = 1,
    // The condition does not hold; nothing was changed.
    DOVETAIL_STATUS_NOT_STORED = 2,
    // The item has another version; nothing was changed.
    DOVETAIL_STATUS_CHANGED = 3,
    // The value is longer than the buffer; its length was written, the buffer was not.
    DOVETAIL_STATUS_BUFFER_TOO_SMALL = 4,
    // NULL, misaligned, or no value that the argument may have.
    DOVETAIL_STATUS_INVALID_ARGUMENT = -1,
    // There is no connection.
    DOVETAIL_STATUS_NOT_CONNECTED = -2,
    // No answer in time; nothing was changed.
    DOVETAIL_STATUS_TIMED_OUT = -3,
    // No answer: the write took effect once or not at all.
    DOVETAIL_STATUS_UNKNOWN = -4,
    // The server is busy; nothing was changed.
    DOVETAIL_STATUS_BUSY = -5,
    // Key or value is longer than the server or the client takes.
    DOVETAIL_STATUS_TOO_LARGE = -6,
    // The value is not an integer, or the sum would be none of 64 bits; nothing was changed.
    DOVETAIL_STATUS_NOT_A_NUMBER = -7,
    // The server has no memory left; nothing was changed.
    DOVETAIL_STATUS_OUT_OF_MEMORY = -8,
    // The server refused the request; nothing was changed.
    DOVETAIL_STATUS_REFUSED = -9,
    // The system or the server failed in another way; see `dovetail_last_error`.
    DOVETAIL_STATUS_FAILED = -10,
    // An invariant broke inside the library; the handle is of no more use.
    DOVETAIL_STATUS_PANICKED = -11,
} dovetail_status;

// A connection to a server. Opaque; made by `dovetail_connect`, freed by `dovetail_close`.
typedef struct dovetail_client dovetail_client;

// How to connect. All zero is the default.
typedef struct dovetail_connect_options {
    // The key of `--native-key-file` as 32 hexadecimal digits; NULL: none.
    const char *tag_key_hex;
    // A call ends after so long without an answer; 0: the default.
    uint64_t timeout_ms;
} dovetail_connect_options;

// A value that the library owns; give it back with `dovetail_value_free`.
typedef struct dovetail_value {
    // Its bytes; NULL: there is no such key. Not NULL for an empty value.
    uint8_t *data;
    // How many.
    size_t len;
} dovetail_value;

// A value with everything beside it. Give `value` back with `dovetail_value_free`.
typedef struct dovetail_item {
    // The value.
    struct dovetail_value value;
    // Changes with each write; for `dovetail_cas`.
    uint64_t version;
    // In milliseconds since 1970-01-01 UTC; 0: never.
    uint64_t expires_at_ms;
    // As stored.
    uint32_t client_flags;
} dovetail_item;

// One key of several.
typedef struct dovetail_key {
    // Its bytes.
    const uint8_t *data;
    // How many.
    size_t len;
} dovetail_key;

// How to store. All zero is the default: in any case, for good.
typedef struct dovetail_set_options {
    // For `DOVETAIL_EXPIRY_AFTER_MS` and `DOVETAIL_EXPIRY_AT_MS`.
    uint64_t expiry_ms;
    // For `DOVETAIL_IF_VERSION`.
    uint64_t version;
    // One of `DOVETAIL_EXPIRY_...`.
    uint32_t expiry;
    // One of `DOVETAIL_IF_...`.
    uint32_t condition;
    // Opaque to the server.
    uint32_t client_flags;
} dovetail_set_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Connects to `native://HOST:PORT` or `shm:PATH` and writes the handle. `options` may be NULL.
enum dovetail_status dovetail_connect(const char *target,
                                      const struct dovetail_connect_options *options,
                                      struct dovetail_client **client);

// Ends a connection and frees its handle, which is of no use afterwards. NULL is nothing to do.
void dovetail_close(struct dovetail_client *client);

// Whether the server answers.
enum dovetail_status dovetail_ping(struct dovetail_client *client);

// Gets a value into the caller's buffer and writes its length. A value longer than
// `buffer_capacity` answers `DOVETAIL_STATUS_BUFFER_TOO_SMALL`: the length is written, the buffer
// is not. No memory is allocated.
enum dovetail_status dovetail_get(struct dovetail_client *client,
                                  const uint8_t *key,
                                  size_t key_len,
                                  uint8_t *buffer,
                                  size_t buffer_capacity,
                                  size_t *value_len);

// Gets a value into memory of the library: give it back with `dovetail_value_free`. It is written
// for `DOVETAIL_STATUS_OK`, and as NULL for `DOVETAIL_STATUS_MISSING`.
enum dovetail_status dovetail_get_value(struct dovetail_client *client,
                                        const uint8_t *key,
                                        size_t key_len,
                                        struct dovetail_value *value);

// Gets a value with its version, expiry and client flags, as `dovetail_get_value` does.
enum dovetail_status dovetail_get_item(struct dovetail_client *client,
                                       const uint8_t *key,
                                       size_t key_len,
                                       struct dovetail_item *item);

// Gets the values of `count` keys, asked for together, in their order: `values` has room for as
// many. For `DOVETAIL_STATUS_OK` all are written, those of missing keys as NULL; give each back
// with `dovetail_value_free`.
enum dovetail_status dovetail_mget(struct dovetail_client *client,
                                   const struct dovetail_key *keys,
                                   size_t count,
                                   struct dovetail_value *values);

// Stores a value. `options` may be NULL: in any case, for good.
enum dovetail_status dovetail_set(struct dovetail_client *client,
                                  const uint8_t *key,
                                  size_t key_len,
                                  const uint8_t *value,
                                  size_t value_len,
                                  const struct dovetail_set_options *options);

// Stores a value for good if the item still has this version, which `dovetail_get_item` told.
enum dovetail_status dovetail_cas(struct dovetail_client *client,
                                  const uint8_t *key,
                                  size_t key_len,
                                  const uint8_t *value,
                                  size_t value_len,
                                  uint64_t version);

// Deletes a key; `DOVETAIL_STATUS_MISSING` if it was not there.
enum dovetail_status dovetail_delete(struct dovetail_client *client,
                                     const uint8_t *key,
                                     size_t key_len);

// Adds to a number, or subtracts, and writes the sum; an absent key counts as 0. `sum` may be
// NULL.
enum dovetail_status dovetail_incr(struct dovetail_client *client,
                                   const uint8_t *key,
                                   size_t key_len,
                                   int64_t delta,
                                   int64_t *sum);

// Puts bytes behind a value, or stores them where there is none, and writes the new length.
// `total_len` may be NULL.
enum dovetail_status dovetail_append(struct dovetail_client *client,
                                     const uint8_t *key,
                                     size_t key_len,
                                     const uint8_t *value,
                                     size_t value_len,
                                     uint64_t *total_len);

// Frees a value that the library owns and makes it NULL, so that freeing it again does nothing.
// NULL is nothing to do.
void dovetail_value_free(struct dovetail_value *value);

// The words of this thread's last failure, or an empty text. Never NULL. They stay until the next
// failure of the same thread, or its end.
const char *dovetail_last_error(void);

// The library's version, as `0.1.0`.
const char *dovetail_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DOVETAIL_H */
