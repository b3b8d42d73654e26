/* What the files of the Python module share. */
#include "arguments.h"

#include <string.h>

Level level;
Py_ssize_t stream_from = 8 << 20;

Py_buffer *hold(Held *held, PyObject *array, int flags)
{
    Py_buffer *view = &held->views[held->count];
    if (PyObject_GetBuffer(array, view, flags) < 0)
        return NULL;
    held->count++;
    return view;
}

void release(Held *held)
{
    while (held->count > 0)
        PyBuffer_Release(&held->views[--held->count]);
}

int64_t *integers(Held *held, PyObject *array, Py_ssize_t least, int flags, Py_ssize_t *count)
{
    Py_buffer *view = hold(held, array, PyBUF_C_CONTIGUOUS | flags);
    if (!view)
        return NULL;
    *count = view->len / 8;
    if (view->itemsize == 8 && *count >= least)
        return view->buf;
    fail("a list is too short, or not of 64-bit integers");
    return NULL;
}

int element_of(const char *format)
{
    static const char *const formats[] = {"f", "d", "Zf", "Zd"}; /* as in Element */
    format += format[0] == '@' || format[0] == '=';
    for (int i = 0; i < 4; i++)
        if (strcmp(format, formats[i]) == 0)
            return i;
    return -1;
}
