from django.db import models


class Author(models.Model):
    name = models.CharField(max_length=20)


class Book(models.Model):
    author = models.ForeignKey(Author, models.CASCADE)
    title = models.CharField(max_length=20)
