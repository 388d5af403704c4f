/* A tour of dovetail.h: cc tour.c -I ../include -L DIR -ldovetail_client && ./a.out TARGET */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dovetail.h"

static const uint8_t *bytes(const char *text) { return (const uint8_t *)text; }

/* Ends the program unless a call became what it should. */
static void expect(const char *call, dovetail_status found, dovetail_status want) {
    if (found != want) {
        fprintf(stderr, "%s: status %d, not %d: %s\n", call, (int)found, (int)want,
                dovetail_last_error());
        exit(1);
    }
}

static void check(const char *what, int is_true) {
    if (!is_true) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

static int is(dovetail_value value, const char *want) {
    return value.data != NULL && value.len == strlen(want) &&
           memcmp(value.data, want, value.len) == 0;
}

static void get_and_set(dovetail_client *client) {
    uint8_t buffer[16] = {0};
    size_t length = 0;
    expect("set", dovetail_set(client, bytes("greeting"), 8, bytes("hello"), 5, NULL),
           DOVETAIL_STATUS_OK);
    expect("get", dovetail_get(client, bytes("greeting"), 8, buffer, sizeof buffer, &length),
           DOVETAIL_STATUS_OK);
    check("the buffer has the value", length == 5 && memcmp(buffer, "hello", 5) == 0);

    memset(buffer, 'x', sizeof buffer);
    length = 0;
    expect("get, small", dovetail_get(client, bytes("greeting"), 8, buffer, 4, &length),
           DOVETAIL_STATUS_BUFFER_TOO_SMALL);
    check("the length is told, the buffer left", length == 5 && buffer[0] == 'x');
    expect("get, missing", dovetail_get(client, bytes("nobody"), 6, buffer, 4, &length),
           DOVETAIL_STATUS_MISSING);

    expect("set, empty", dovetail_set(client, bytes("empty"), 5, NULL, 0, NULL),
           DOVETAIL_STATUS_OK);
    expect("get, empty", dovetail_get(client, bytes("empty"), 5, NULL, 0, &length),
           DOVETAIL_STATUS_OK);
    check("an empty value has no bytes", length == 0);
}

static void conditions(dovetail_client *client) {
    dovetail_set_options options = {0};
    dovetail_item item;
    options.condition = DOVETAIL_IF_ABSENT;
    expect("set if absent", dovetail_set(client, bytes("greeting"), 8, bytes("x"), 1, &options),
           DOVETAIL_STATUS_NOT_STORED);
    options.condition = DOVETAIL_IF_PRESENT;
    options.expiry = DOVETAIL_EXPIRY_AFTER_MS;
    options.expiry_ms = 60 * 1000;
    options.client_flags = 7;
    expect("set if present", dovetail_set(client, bytes("greeting"), 8, bytes("hi"), 2, &options),
           DOVETAIL_STATUS_OK);

    expect("get_item", dovetail_get_item(client, bytes("greeting"), 8, &item), DOVETAIL_STATUS_OK);
    check("the item has it all", is(item.value, "hi") && item.expires_at_ms > 0 &&
                                     item.client_flags == 7 && item.version > 0);
    dovetail_value_free(&item.value);
    expect("cas, old",
           dovetail_cas(client, bytes("greeting"), 8, bytes("no"), 2, item.version + 1),
           DOVETAIL_STATUS_CHANGED);
    expect("cas", dovetail_cas(client, bytes("greeting"), 8, bytes("yes"), 3, item.version),
           DOVETAIL_STATUS_OK);
    expect("cas, missing", dovetail_cas(client, bytes("nobody"), 6, bytes("no"), 2, 1),
           DOVETAIL_STATUS_MISSING);
    expect("get_item again", dovetail_get_item(client, bytes("greeting"), 8, &item),
           DOVETAIL_STATUS_OK);
    check("cas stored for good", is(item.value, "yes") && item.expires_at_ms == 0);
    dovetail_value_free(&item.value);
}

static void numbers(dovetail_client *client) {
    int64_t sum = 0;
    uint64_t length = 0;
    expect("incr", dovetail_incr(client, bytes("count"), 5, 40, &sum), DOVETAIL_STATUS_OK);
    expect("incr, down", dovetail_incr(client, bytes("count"), 5, -2, &sum), DOVETAIL_STATUS_OK);
    check("the sum is 38", sum == 38);
    expect("incr, no place", dovetail_incr(client, bytes("count"), 5, 1, NULL),
           DOVETAIL_STATUS_OK);
    expect("incr, a word", dovetail_incr(client, bytes("greeting"), 8, 1, &sum),
           DOVETAIL_STATUS_NOT_A_NUMBER);
    check("the error has words", strlen(dovetail_last_error()) > 0);
    expect("append", dovetail_append(client, bytes("count"), 5, bytes("!"), 1, &length),
           DOVETAIL_STATUS_OK);
    check("39! has three bytes", length == 3);
}

static void several(dovetail_client *client) {
    dovetail_key keys[3] = {{bytes("greeting"), 8}, {bytes("nobody"), 6}, {bytes("count"), 5}};
    dovetail_value values[3];
    size_t index;
    expect("mget", dovetail_mget(client, keys, 3, values), DOVETAIL_STATUS_OK);
    check("values in the keys' order",
          is(values[0], "yes") && values[1].data == NULL && is(values[2], "39!"));
    for (index = 0; index < 3; index++) {
        dovetail_value_free(&values[index]);
        check("freed is NULL", values[index].data == NULL && values[index].len == 0);
    }
    expect("mget of none", dovetail_mget(client, NULL, 0, NULL), DOVETAIL_STATUS_OK);
}

static void large(dovetail_client *client) {
    const size_t length = 1 << 20;
    uint8_t *big = malloc(length);
    dovetail_value value;
    check("there is memory", big != NULL);
    memset(big, 'b', length);
    expect("set, 1 MiB", dovetail_set(client, bytes("big"), 3, big, length, NULL),
           DOVETAIL_STATUS_OK);
    expect("get_value", dovetail_get_value(client, bytes("big"), 3, &value), DOVETAIL_STATUS_OK);
    check("1 MiB came back", value.len == length && memcmp(value.data, big, length) == 0);
    dovetail_value_free(&value);
    free(big);
}

int main(int count, char **arguments) {
    const char *const names[] = {"greeting", "empty", "count", "big"};
    dovetail_client *client = NULL;
    dovetail_connect_options options = {0};
    size_t index;
    if (count != 2) {
        fprintf(stderr, "usage: tour native://HOST:PORT | shm:PATH\n");
        return 2;
    }
    options.timeout_ms = 30 * 1000;
    expect("connect", dovetail_connect(arguments[1], &options, &client), DOVETAIL_STATUS_OK);
    expect("ping", dovetail_ping(client), DOVETAIL_STATUS_OK);
    get_and_set(client);
    conditions(client);
    numbers(client);
    several(client);
    large(client);
    for (index = 0; index < sizeof names / sizeof names[0]; index++) {
        expect("delete", dovetail_delete(client, bytes(names[index]), strlen(names[index])),
               DOVETAIL_STATUS_OK);
    }
    expect("delete again", dovetail_delete(client, bytes("big"), 3), DOVETAIL_STATUS_MISSING);
    dovetail_close(client);
    printf("dovetail %s: all went well\n", dovetail_version());
    return 0;
}
